package ring_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

func TestEpollPassesTheSuite(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  ring.Config
	}{
		{"Defaults", ring.Config{}},
		{"Small", ring.Config{Ops: 16, Control: 64, RecvBuffers: 4, RecvBufferSize: 4096, Workers: 1}},
		{"Spinning", ring.Config{Spin: 50 * time.Microsecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ringtest.Run(t, func(t *testing.T) ring.Interface {
				e, err := ring.NewEpoll(c.cfg)
				require.NoError(t, err)
				return e
			})
		})
	}
}
