package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l2/seglog"
)

// stateOnly is a core that is asked for nothing but the state of its disk tier.
type stateOnly struct {
	core
	state seglog.State
}

func (s *stateOnly) DiskState() seglog.State { return s.state }

func TestADiskTierThatFailsAndComesBackIsToldOfOnce(t *testing.T) {
	var text bytes.Buffer
	c := &stateOnly{}
	r := &reactor{core: c, log: slog.New(slog.NewTextHandler(&text, nil)), disk: make([]diskOp, 1), diskFree: []uint32{0}}
	look := func(s seglog.State) string {
		text.Reset()
		c.state = s
		for range 3 {
			r.reportDisk()
		}
		require.LessOrEqual(t, strings.Count(text.String(), "\n"), 1)
		return text.String()
	}
	require.Empty(t, look(seglog.StateOK))
	r.diskDone(r.takeDisk(1), -int64(unix.ENOSPC), 0)
	r.now = time.Second
	said := look(seglog.StateDegraded)
	require.Contains(t, said, "level=WARN")
	require.Contains(t, said, "disk tier degraded")
	require.Contains(t, said, unix.ENOSPC.Error())
	r.now = 3 * time.Second
	said = look(seglog.StateOK)
	require.Contains(t, said, "disk tier well again")
	require.Contains(t, said, "after=2s")
	require.Contains(t, look(seglog.StateDegraded), "disk tier degraded", "and again")
	r.stallTime = 7 * time.Second
	said = look(seglog.StateStalled)
	require.Contains(t, said, "disk tier stalled")
	require.Contains(t, said, "7s")
	require.Empty(t, look(seglog.StateDegraded), "it is tried")
	require.Empty(t, look(seglog.StateStalled), "and hangs again")
	require.Contains(t, look(seglog.StateOK), "well again")
	require.Contains(t, look(seglog.StateStalled), "disk tier stalled")
	require.Empty(t, look(seglog.StateClosing), "a stop is not a recovery")
	require.Empty(t, look(seglog.StateClosed))
}

func TestDescriptorsAreSharedOut(t *testing.T) {
	for _, c := range []struct{ room, conns, instances, wantConns, wantInstances int }{
		{10_000, 1024, 1024, 1024, 1024},
		{12_000, 10_000, 1024, 10_000, 1024},
		{10_000, 10_000, 100, 9900, 100},
		{2 * 1024, 1024, 1024, 1024, 1024},
		{2*1024 - 1, 1024, 1024, 1024, 1023},
		{300, 1024, 1024, 150, 150},
		{300, 10, 1024, 10, 290},
		{300, 1024, 20, 280, 20},
		{8, 1024, 1024, 4, 4},
	} {
		conns, instances := shareFiles(c.room, c.conns, c.instances)
		require.Equal(t, c.wantConns, conns, "%+v", c)
		require.Equal(t, c.wantInstances, instances, "%+v", c)
		require.LessOrEqual(t, filesPerConn*conns+filesPerInstance*instances, c.room, "%+v", c)
	}
}

func TestThePoolsErrorsSayWhatToDo(t *testing.T) {
	require.Contains(t, poolHint(l1.ErrInUse), "another name")
	require.Contains(t, poolHint(l1.ErrRefused), "another name")
	require.Contains(t, poolHint(l1.ErrNoSpace{Need: 2, Have: 1}), "less")
	require.Contains(t, poolHint(unix.ENOMEM), "memory")
	require.Empty(t, poolHint(unix.EPERM))
}
