package bench

import (
	"math"
	"strconv"
)

// An Estimate is the mean of a figure over seeds.
type Estimate struct {
	Mean float64
	Half float64 // half width of the 95 % confidence interval; 0 with one seed
	N    int     // seeds
}

// student holds the 97.5 % quantiles of Student's t distribution, by degrees of freedom from 1.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}

// estimate returns the mean of values with its confidence interval.
func estimate(values []float64) Estimate {
	n := len(values)
	if n == 0 {
		return Estimate{}
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	e := Estimate{Mean: sum / float64(n), N: n}
	if n == 1 {
		return e
	}
	square := 0.0
	for _, v := range values {
		square += (v - e.Mean) * (v - e.Mean)
	}
	t := 1.96
	if n-2 < len(student) {
		t = student[n-2]
	}
	e.Half = t * math.Sqrt(square/float64(n-1)/float64(n))
	return e
}

// round keeps four significant digits: more means nothing, and makes output hard to read.
func round(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// Figure writes a figure with four significant digits, without an exponent.
func Figure(x float64) string { return strconv.FormatFloat(round(x), 'f', -1, 64) }
