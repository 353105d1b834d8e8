package engine

import (
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
)

// What was stored can be evicted when the disk has it. The head of a prefix got there first, and went first, so that nothing was
// left of the prefix but what is of no use without it.
func TestTheTailOfAPrefixGoesFirstThoughTheDiskHasAll(t *testing.T) {
	for _, policy := range modelPolicies {
		for _, size := range []uint64{slotSize, 16 * slotSize} {
			for _, refused := range []bool{false, true} { // by the disk: then it is clean all the same
				w := diskWorld(t, 12*int(size)/slotSize, Config{InstanceCap: math.MaxInt64, Policy: policy})
				if refused {
					w.fail = func(io *seglog.IO) int64 {
						if io.Kind == seglog.IOWrite {
							return -int64(syscall.ENOSPC)
						}
						return 0
					}
				}
				a := w.worker(1, 100)
				chains := [][]string{names("p", 4), names("q", 4), names("r", 4)}
				for _, keys := range chains {
					a.store(size, keys...)
					w.settle()
				}
				a.store(size, "s", "u")
				w.settle()
				for _, keys := range chains {
					there := 0
					for there < len(keys) && w.resident(keys[there]) {
						there++
					}
					for _, k := range keys[there:] {
						require.False(t, w.resident(k), "%v: %s is there without what is before it", policy, k)
					}
				}
			}
		}
	}
}
