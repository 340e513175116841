package bench

import (
	"cmp"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// grainObjects are those of FissLock's Fig. 17, left: each belongs to one of fewer locks.
const grainObjects = 10_000_000

var expFiss17a = &Experiment{
	Name: "fiss17a", Other: true, Title: "FissLock's Fig. 17, left: throughput by number of locks, 10 million objects, 90 % readers",
	Paper: "FissLock's paper, section 7.7: FissLock is fastest with a million locks and more, NetLock with some 1,000; the peak of FissLock is 1.99 times that of NetLock with uniform requests, and 1.26 times by Zipf. Coarse locks take " +
		"up to 5.40 times of its throughput.",
	Columns: []string{"part", "lock", "locks", "mops", "acquire_p50_us", "acquire_p90_us", "acquire_p99_us", "busiest_agent"},
	Points: func(o Options) (points []Point) {
		for _, l := range fissLoads {
			if l.name != "RM, uniform" && l.name != "RM, Zipf" {
				continue
			}
			points = append(points, across(pick(o, []int{100, 1000, 10_000, 100_000, 1_000_000}, 100, 1000, 1_000_000), []string{"fiss", "netlock", "declock", "declock-tf"}, func(n int, lock string) Point {
				m := Default(lock)
				fissTestbed(&m)
				l.set(&m)
				m.Locks, m.Turns, m.WarmupNs, m.WindowNs = n, 7, fabric.Millisecond, 2*fabric.Millisecond
				if n <= 1000 { // few requests, which change slowly
					m.WindowNs = 8 * fabric.Millisecond
				}
				r := txnRun{trace: "zipf", objects: grainObjects, sorted: true}
				return r.point(m.sized(o), Params{{"part", l.name}, {"lock", lock}, {"locks", n}}, o)
			})...)
		}
		return points
	},
	Judge: func(rows Rows) (claims []Claim) {
		const gather = "agents gather on few machines: readers whose agent is on a busy one hold their lock for longer, for that answers late, and as long as there is one the agent stays (by argument). "
		const queues = "NetLock has queues for 10,000 locks on the switch, and a lock is held for no longer than it takes to release it: so it does not contend with as many. "
		for _, c := range []struct {
			part  string
			paper float64
		}{{"RM, uniform", 1.99}, {"RM, Zipf", 1.26}} {
			at := rows.Where("part", c.part)
			peak := func(lock string) Row { return at.Where("lock", lock).Max("mops") }
			fastest := missing // unless there are more and fewer than in the paper
			if at.Find("lock", "netlock", "locks", 10_000).Metrics != nil && at.Find("lock", "netlock", "locks", 100).Metrics != nil {
				fastest = valueOf(peak("netlock"), "locks")
			}
			note := queues + fmt.Sprintf("the peaks are at %s locks of fiss, %s of netlock, %s of declock. ", Figure(peak("fiss").Value("locks")), Figure(peak("netlock").Value("locks")), Figure(peak("declock").Value("locks"))) +
				both(at, "fiss", "netlock", "locks", "mops") + "; " + both(at, "declock", "declock-tf", "locks", "mops")
			claims = append(claims, Claim{Text: c.part + ": FissLock's peak over NetLock's", Unit: "x", Paper: c.paper, Note: note}.Near(Ratio(peak("fiss"), peak("netlock"), "mops"), 1.25))
			if c.part == "RM, uniform" {
				claims = append(claims, Claim{Text: c.part + ": FissLock's peak over its throughput with the fewest locks", Unit: "x", Paper: 5.4, Note: note}.AtLeast(Ratio(peak("fiss"), at.Find("lock", "fiss", "locks", 100), "mops"), 2.7),
					Claim{Text: c.part + ", 1,000 locks: messages of FissLock's busiest agent over the mean: agents that migrate balance the load", Unit: "x", Paper: 1, Note: gather + inWords(at, "fiss", "locks", "busiest_agent") + "; " + inWords(at, "fiss", "locks", "acquire_p99_us")}.
						AtMost(valueOf(at.Find("lock", "fiss", "locks", 1000), "busiest_agent"), 1.5),
					Claim{Text: c.part + ": NetLock is fastest with so many locks", Paper: 1000, Note: note}.Near(fastest, 2))
			}
			claims = append(claims, Claim{Own: true, Text: c.part + ": declock's peak over the best other's", Unit: "x", Note: note}.AtLeast(cmp.Or(Ratio(peak("declock"), Rows{peak("fiss"), peak("netlock")}.Max("mops"), "mops"), missing), 1))
		}
		return claims
	},
}

// The bank of FissLock's Fig. 17, right. An operation's data is in an in-memory store, which is a round trip away; a transfer reads two balances, then writes them.
const (
	bankAccounts = 1_000_000
	bankAccessNs = 20 * fabric.Microsecond
	// redisNs is what a Redis takes for a request to lock or unlock, and redisRetryNs after how long at most a client asks again that was refused.
	redisNs      = 10 * fabric.Microsecond
	redisRetryNs = fabric.Millisecond
)

// bankSource draws operations of the bank: 90 % read a balance, 10 % transfer funds.
type bankSource struct {
	zipf *traces.Zipf
	*traces.Rand
	transfer bool
}

// Next implements locktrace.Source.
func (s *bankSource) Next(list []locktrace.Access) []locktrace.Access {
	account := func(m lock.Mode) locktrace.Access {
		return locktrace.Access{Lock: uint32(s.zipf.Rank(s.Rand) - 1), Mode: m}
	}
	if s.transfer = s.Below(10) == 0; !s.transfer {
		return append(list, account(lock.Shared))
	}
	from, to := account(lock.Exclusive), account(lock.Exclusive)
	for to.Lock == from.Lock {
		to = account(lock.Exclusive)
	}
	return append(list, from, to)
}

// think implements thinker.
func (s *bankSource) think() fabric.Time {
	if s.transfer {
		return 2 * bankAccessNs
	}
	return bankAccessNs
}

// redlock is the lock of Redis: one server, on one thread, of a table; exclusive only.
const redlock = "redlock"

var expFiss17c = &Experiment{
	Name: "fiss17c", Other: true, Title: "FissLock's Fig. 17, right: a bank of a million accounts, 90 % balance checks, 10 % transfers",
	Paper: "FissLock's paper, section 7.9, by number of clients: RedLock has at most 24,800 operations/s, for contention, FissLock 825,400, and a median at least ten times as short. Here accounts are drawn by Zipf 0.99, an access to " +
		"data takes 20 us, a request to Redis 10 us, and a client that was refused asks again after up to 1 ms: all assumed.",
	Columns: []string{"lock", "clients", "mops", "p50_us", "p99_us", "acquire_p50_us"},
	Points: func(o Options) []Point {
		return across(pick(o, []int{16, 160, 640}, 16, 160), []string{redlock, "fiss", "netlock", "declock", "declock-tf"}, func(clients int, lock string) Point {
			m, r := Default(lock), txnRun{trace: "bank", sorted: true}
			if lock == redlock {
				m = Default("rpc:1")
				r.mutex, r.serverNs, r.retryNs = true, redisNs, redisRetryNs
			}
			fissTestbed(&m)
			m.Clients, m.Locks, m.Theta, m.Turns, m.WarmupNs, m.WindowNs = clients, bankAccounts, DefaultTheta, 7, 10*fabric.Millisecond, 30*fabric.Millisecond
			if lock == redlock {
				m.WarmupNs, m.WindowNs = 50*fabric.Millisecond, 500*fabric.Millisecond
			}
			return r.point(m.sized(o), Params{{"lock", lock}, {"clients", clients}}, o)
		})
	},
	Judge: func(rows Rows) []Claim {
		peak := func(lock string) Row { return rows.Where("lock", lock).Max("mops") }
		over := rows.Along(redlock, "fiss", "clients", "p50_us")
		note := "the Redis serves 100,000 requests/s, assumed, and a balance check needs two of them; no store bounds the others. " + both(rows, redlock, "fiss", "clients", "mops") + "; " + both(rows, "declock", "declock-tf", "clients", "mops") +
			"; " + both(rows, redlock, "fiss", "clients", "p50_us")
		mops := func(lock string) float64 { return 1000 * valueOf(peak(lock), "mops") }
		return []Claim{
			Claim{Text: "RedLock's peak", Unit: "k/s", Paper: 24.8, Note: note}.Near(mops(redlock), 2),
			Claim{Text: "FissLock's peak", Unit: "k/s", Paper: 825.4, Note: note}.AtLeast(mops("fiss"), 825.4),
			Claim{Text: "FissLock's peak over RedLock's", Unit: "x", Paper: 33.3, Note: note}.AtLeast(Ratio(peak("fiss"), peak(redlock), "mops"), 33.3),
			Claim{Text: "RedLock's median over FissLock's, up to", Unit: "x", Paper: 10, Note: note}.UpTo(over, Claim.AtLeast, 10),
			Claim{Own: true, Text: "declock's peak over FissLock's", Unit: "x", Note: note}.AtLeast(Ratio(peak("declock"), peak("fiss"), "mops"), 1),
		}
	},
}
