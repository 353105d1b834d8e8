package client_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// A client punches a hole where nothing is: the kernel reads from the disk into the pages that were there, nobody sees the
// bytes, and whatever is loaded to that place is given up as if the disk had lost it.
func TestAHoleCostsNothingThatIsOnDisk(t *testing.T) {
	c := startChild(t, func(c *childConfig) { c.L2Dir = t.TempDir() })
	w := worker(t, c.addr(), client.Registration{})
	ctx := within(t)
	counter := func(name string) uint64 {
		list, err := w.Conn().Stats(ctx)
		require.NoError(t, err)
		for _, n := range list {
			if n.Name == name {
				return n.Value
			}
		}
		t.Fatalf("no counter %s", name)
		return 0
	}
	const n = 24 // of a mebibyte, of which 16 fit into memory
	values := make([][]byte, n)
	for i := range values {
		values[i] = bytes.Repeat([]byte{byte(i + 1), byte(7 * i)}, 1<<19)
		status, err := w.Put(ctx, 0, key(i), values[i])
		require.NoError(t, err)
		require.Equal(t, proto.StatusOK, status)
	}
	for counter("spills_total") < n {
		require.NoError(t, ctx.Err())
		time.Sleep(time.Millisecond)
	}
	for i := range 3 {
		st, err := w.PrepareStore(ctx, 0, []client.Key{key(1000 + i)}, []uint64{1 << 20}, time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, st.Reserved())
		require.NoError(t, unix.Madvise(st.Slot(0), unix.MADV_REMOVE))
		require.NoError(t, st.Abort(ctx))
		for k, want := range values { // each in the place of one that was there
			got, there, err := w.Fetch(ctx, 0, key(k), nil)
			require.NoError(t, err)
			require.True(t, there, "value %d is not there after hole %d", k, i)
			require.True(t, bytes.Equal(want, got), "value %d", k)
		}
	}
	require.Zero(t, counter("l2_bad_records_total"))
	t.Logf("%d values were read once more", counter("l2_rereads_total"))
}
