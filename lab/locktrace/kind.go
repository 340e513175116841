package locktrace

// A Kind is what a transaction of TATP or TPC-C is.
type Kind uint8

// Kinds.
const (
	GetSubscriberData Kind = iota
	GetNewDestination
	GetAccessData
	UpdateSubscriberData
	UpdateLocation
	InsertCallForwarding
	DeleteCallForwarding

	NewOrder
	Payment
	OrderStatus
	Delivery
	StockLevel

	NumKinds
)

// String returns the letters that papers use for a kind.
func (k Kind) String() string {
	return [...]string{"gsd", "gnd", "gad", "usd", "ul", "icf", "dcf", "new", "pay", "os", "dly", "sl"}[k]
}

// A share is that of transactions of a kind, in percent.
type share struct {
	kind    Kind
	percent int
}

// The mixes of the specifications. TPC-C asks for so many at least.
var (
	tatpMix = []share{{GetSubscriberData, 35}, {GetNewDestination, 10}, {GetAccessData, 35}, {UpdateSubscriberData, 2}, {UpdateLocation, 14}, {InsertCallForwarding, 2}, {DeleteCallForwarding, 2}}
	tpccMix = []share{{NewOrder, 45}, {Payment, 43}, {OrderStatus, 4}, {Delivery, 4}, {StockLevel, 4}}
)

// kindOf returns the kind for a number from 0 to 99.
func kindOf(mix []share, n int) Kind {
	for _, s := range mix {
		if n -= s.percent; n < 0 {
			return s.kind
		}
	}
	panic("locktrace: the shares of a mix are not 100 %")
}

// KindsOf returns the kinds of a benchmark, "tatp" or "tpcc".
func KindsOf(benchmark string) (kinds []Kind) {
	for _, s := range map[string][]share{"tatp": tatpMix, "tpcc": tpccMix}[benchmark] {
		kinds = append(kinds, s.kind)
	}
	return kinds
}
