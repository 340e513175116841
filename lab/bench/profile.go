package bench

import (
	"cmp"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locktrace"
)

// profileSeed is added to the seed of a run: what it asks for is not what its profile has seen.
const profileSeed = 1 << 32

// profile has the run take a profile.
func (r *txnRun) profile(o Options) (err error) {
	dry := &txnRun{m: r.m, trace: r.trace, artifact: r.artifact, warehouses: r.warehouses, subscribers: r.subscribers, objects: r.objects}
	dry.m.Seed += profileSeed
	_, r.before, err = dry.sources(o)
	return err
}

// profileTxns is how many transactions a profile counts, of all clients together.
const profileTxns = 200_000

// hottest returns the locks that a dry run of the clients asks for most often, the hottest first, and of equals the one that is asked for first: most of them, of n.
func (r *txnRun) hottest(n, most int) []fabric.Addr {
	asked, order := make([]uint32, n), make([]uint32, 0, n)
	var list []locktrace.Access
	for i := range r.m.CNs {
		for k := i; k < r.m.Clients; k += r.m.CNs {
			src := r.before(i, k)
			for range max(profileTxns/r.m.Clients, 1) {
				list = src.Next(list[:0])
				for _, a := range list {
					if asked[a.Lock]++; asked[a.Lock] == 1 {
						order = append(order, a.Lock)
					}
				}
			}
		}
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(asked[b], asked[a]) })
	addrs := make([]fabric.Addr, min(most, len(order)))
	for i := range addrs {
		addrs[i] = r.addr(order[i])
	}
	return addrs
}
