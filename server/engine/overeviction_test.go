package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// TestEvictionFreesWhatIsNeededAndNoMore: over-eviction, as the target is computed from the
// wrong base. Memory is full up to 95 % and the disk has ten times as many objects; stores
// and loads that need 10 % of it evict 5 %, whatever the disk has.
func TestEvictionFreesWhatIsNeededAndNoMore(t *testing.T) {
	const slots = 100
	const need = slots/10 + 2 // an odd number has to go, so that evictions in pairs are seen
	for _, policy := range modelPolicies {
		for _, loads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, loads %v", policy, loads), func(t *testing.T) {
				w := newWorld(t, setup{
					slots: slots, diskSize: 64 << 20, segment: 4 << 20, quiet: true,
					cfg: Config{Policy: policy, InstanceCap: math.MaxInt64},
				})
				a := w.worker(1, 100)
				for n := range 20 {
					a.store(slotSize, names(fmt.Sprint("k", n, " "), slots/2)...)
					w.settle()
				}
				require.EqualValues(t, 10*slots, w.log.Stats().Records)
				u := w.e.table.Usage()
				require.EqualValues(t, slots*slotSize, u.Used)
				gone := 0
				for n := 19; gone < slots/20; n-- { // of those that are in memory some are deleted
					for _, k := range names(fmt.Sprint("k", n, " "), slots/2) {
						if gone < slots/20 && w.resident(k) {
							id := a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(k)}), nil)
							w.settle()
							a.answered(id, proto.StatusOK)
							gone++
						}
					}
				}
				before := w.e.table.Usage()
				require.EqualValues(t, slots*95/100*slotSize, before.Used)
				if loads {
					var cold []string
					for n := 0; len(cold) < need; n++ {
						for _, k := range names(fmt.Sprint("k", n, " "), slots/2) {
							if len(cold) < need && !w.resident(k) {
								cold = append(cold, k)
							}
						}
					}
					id := a.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, cold...)
					w.settle()
					require.EqualValues(t, need, a.found(id).Hits)
				} else {
					a.store(slotSize, names("new", need)...)
				}
				after := w.e.table.Usage()
				require.EqualValues(t, need-slots/20, after.Evictions-before.Evictions)
				require.EqualValues(t, slots*slotSize, after.Used)
			})
		}
	}
}
