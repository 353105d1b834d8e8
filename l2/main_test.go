package l2_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// The test binary is its own helper process when one of these names a directory.
const (
	writerVariable = "L2_TEST_WRITER" // put until killed
	holderVariable = "L2_TEST_HOLDER" // hold the store until killed
)

func TestMain(m *testing.M) {
	mounttest.Private()
	if dir := os.Getenv(writerVariable); dir != "" {
		fmt.Fprintln(os.Stderr, "writer:", runWriter(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(holderVariable); dir != "" {
		fmt.Fprintln(os.Stderr, "holder:", runHolder(dir))
		os.Exit(1)
	}
	if number := os.Getenv(forbidVariable); number != "" {
		fmt.Fprintln(os.Stderr, "forbid:", becomeConfined(number)) // or another program by now
		os.Exit(1)
	}
	if dir := os.Getenv(confinedVariable); dir != "" {
		if err := runConfined(dir); err != nil {
			fmt.Fprintln(os.Stderr, "confined:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// open opens a store that must open. It is closed at the end of the test.
func open(t testing.TB, dir string, opts l2.Options) *l2.Store {
	t.Helper()
	if opts.Engine == ring.EngineAuto {
		opts.Engine = ringtest.Engine(t)
	}
	s, err := l2.Open(dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// pattern is random bytes, made once.
var pattern = sync.OnceValue(func() []byte {
	p := make([]byte, 16<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(p) // never fails
	return p
})

// value returns n bytes, 8 MiB at most, that depend on seed alone. They must not be
// changed.
func value(seed uint64, n int) []byte {
	at := seed * 0x9e3779b97f4a7c15 >> (64 - 23)
	return pattern()[at:][:n:n]
}
