package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// Nothing is ordered by waiting: waitMax bounds what would otherwise hang, and tick is how
// often a condition is looked at.
const (
	waitMax = 10 * time.Second
	tick    = time.Millisecond
)

var testLayout = Layout{Name: "test", Dims: []uint32{4, 4}, Size: 1 << 20}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	t.Cleanup(cancel)
	return ctx
}

// checkLeaks fails the test if goroutines of this package are left at its end.
func checkLeaks(t testing.TB) {
	t.Cleanup(func() {
		left := ""
		ok := func() bool {
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			left = ""
			for _, g := range strings.Split(string(buf), "\n\n") {
				for _, owner := range []string{"(*link)", "(*outbox)", "(*session)", "(*Worker)", "(*Conn)", "(*fakeConn)"} {
					if strings.Contains(g, "slotcache/client."+owner) {
						left += g + "\n\n"
						break
					}
				}
			}
			return left == ""
		}
		for end := time.Now().Add(waitMax); !ok(); {
			if time.Now().After(end) {
				t.Errorf("goroutines are left:\n%s", left)
				return
			}
			time.Sleep(tick)
		}
	})
}

// A logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open registers a worker that is closed with the test.
func open(t testing.TB, s *fakeServer, reg Registration) *Worker {
	t.Helper()
	if reg.Layouts == nil {
		reg.Layouts = []Layout{testLayout}
	}
	w, err := Open(testContext(t), s.addr(), Options{Logger: (&logs{}).logger()}, reg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func keyOf(i int) Key {
	var k Key
	binary.BigEndian.PutUint64(k[:], uint64(i))
	k[31] = 0xAA
	return k
}

func keysOf(first, n int) []Key {
	list := make([]Key, n)
	for i := range list {
		list[i] = keyOf(first + i)
	}
	return list
}

func sizesOf(n int, size uint64) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = size
	}
	return list
}

// valueOf is what the tests store under keyOf(i).
func valueOf(i, size int) []byte {
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(i*31 + j)
	}
	return b
}

// storeAll stores keys [first, first+n) with their values.
func storeAll(t testing.TB, w *Worker, first, n, size int) {
	t.Helper()
	st, err := w.PrepareStore(testContext(t), 0, keysOf(first, n), sizesOf(n, uint64(size)), 0)
	require.NoError(t, err)
	for i := range n {
		require.Equal(t, proto.StatusReserved, st.Status(i))
		require.Len(t, st.Slot(i), size)
		copy(st.Slot(i), valueOf(first+i, size))
	}
	require.NoError(t, st.Commit(testContext(t)))
	require.Equal(t, n, st.Published())
}

func requireValues(t testing.TB, first, size int, values [][]byte) {
	t.Helper()
	for i, v := range values {
		require.True(t, bytes.Equal(valueOf(first+i, size), v), "value %d is not what was stored", first+i)
	}
}

// poolMaps returns the lines of /proc/self/smaps headers (or VmFlags) of mappings of the
// fake's pool that are not the fake's own.
func poolMaps(t testing.TB) (maps []string, flags []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	in := false
	for _, line := range strings.Split(string(b), "\n") {
		if strings.Contains(line, "memfd:fakepool") || strings.Contains(line, "slotcache_l1_pool_test") {
			in = true
			maps = append(maps, line)
		} else if in && strings.HasPrefix(line, "VmFlags:") {
			flags = append(flags, line)
			in = false
		}
	}
	return maps, flags
}

// poolFds counts descriptors of the fake's pool in this process.
func poolFds(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err == nil && (strings.Contains(to, "memfd:fakepool") || strings.Contains(to, "slotcache_l1_pool_test")) {
			n++
		}
	}
	return n
}

// eachTransport runs a test with shared memory, passed and named, and inline.
func eachTransport(t *testing.T, run func(t *testing.T, cfg fakeConfig)) {
	for _, kind := range []proto.ShmKind{proto.ShmFd, proto.ShmNamed, proto.ShmNone} {
		t.Run(kind.String(), func(t *testing.T) { run(t, fakeConfig{kind: kind}) })
	}
}
