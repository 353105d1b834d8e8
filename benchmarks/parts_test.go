package benchmarks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

func TestWhatIsPendingIsNamed(t *testing.T) {
	rest := Pending{Used: 8192, Resident: 8192}
	require.Empty(t, rest.left(&Pending{}))
	for _, p := range []Pending{
		{Instances: 1},
		{Transfers: 1},
		{Waiting: 1},
		{Held: 1},
		{Staged: 4096, Used: 4096},
		{Quarantined: 4096, Used: 4096},
		{Loading: 4096, Used: 4096},
		{Doomed: 4096, Used: 4096},
		{Used: 4096},
		{Resident: 4096},
	} {
		require.NotEmpty(t, p.left(&Pending{}), "%+v", p)
	}
	busy := Pending{Instances: 3, Transfers: 2, Held: 4096, Staged: 4096, Used: 4096}
	require.Empty(t, busy.left(&busy), "what was there before is not ours")
}

func TestPiecesLeaveHalfOfThePoolToOthers(t *testing.T) {
	require.Equal(t, 2048, pieceBlocks(256<<20, 1, 64<<10))
	require.Equal(t, 512, pieceBlocks(256<<20, 4, 64<<10))
	require.Equal(t, 1, pieceBlocks(1<<20, 4, 1<<20), "one block at least")
	require.Equal(t, 2048, pieceBlocks(1<<40, 1, 4096), "a request fits into a frame")
	require.Less(t, 2048, proto.MaxKeys)
}

func TestOnlyRefusalsThatWillComeAgainAreHopeless(t *testing.T) {
	refused := func(s proto.Status) error {
		return fmt.Errorf("wrapped: %w", &client.StatusError{Op: proto.OpLookup, Status: s})
	}
	for _, s := range []proto.Status{proto.StatusBadRequest, proto.StatusDenied, proto.StatusTooLarge} {
		require.True(t, hopeless(refused(s)), s)
	}
	for _, s := range []proto.Status{proto.StatusBusy, proto.StatusStale, proto.StatusStaleEpoch, proto.StatusNoSpace, proto.StatusDraining} {
		require.False(t, hopeless(refused(s)), s)
	}
	require.False(t, hopeless(client.ErrDisconnected))
	require.True(t, hopeless(client.ErrClosed))
}

func TestReportsSayWhatIsWrong(t *testing.T) {
	require.NoError(t, (&Report{Retries: 3, FailedStores: 2, Restarts: 1}).Err())
	require.ErrorContains(t, (&Report{WrongBytes: 5}).Err(), "5 bytes")
	require.ErrorContains(t, (&Report{Errors: 2, LastError: "boom"}).Err(), "boom")
	require.ErrorContains(t, (&Report{Leak: "held bytes 7"}).Err(), "held bytes 7")
}

func TestSyntheticTracesFollowTheirSeed(t *testing.T) {
	dir := t.TempDir()
	read := func(name string, seed uint64) string {
		path := filepath.Join(dir, name)
		require.NoError(t, WriteSynthetic(path, 200, seed))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, read("a", 1), read("b", 1))
	require.NotEqual(t, read("a", 1), read("c", 2))
	requests, err := ReadTrace(filepath.Join(dir, "a"), 0)
	require.NoError(t, err)
	blocks, hits := InfiniteHits(requests)
	require.Greater(t, hits, blocks/2, "conversations grow from what was said before")
}

func TestProcessesAreStoppedAndKilled(t *testing.T) {
	kind, err := startProcess(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	require.Error(t, kind.stop(time.Minute), "sleep dies of the signal")
	kind.kill() // a second end does nothing

	stubborn, err := startProcess(exec.Command("sh", "-c", "trap '' TERM; echo; exec sleep 1000"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, stubborn.wait(ctx), context.Canceled)
	stubborn.kill()
	require.GreaterOrEqual(t, stubborn.cpu(), time.Duration(0))

	_, err = startProcess(exec.Command("/none"))
	require.ErrorContains(t, err, "/none")
}

func TestProcessorTimeOfThisProcessGrows(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	for {
		key, p := BlockKey(1), make([]byte, 1<<20)
		Fill(&key, p)
		after, err := CPUTime(os.Getpid())
		require.NoError(t, err)
		if after > before {
			return
		}
	}
}

func TestThisMachineIsDescribed(t *testing.T) {
	m := ThisMachine()
	require.Positive(t, m.CPUs)
	require.Positive(t, m.Memory)
	require.NotEmpty(t, m.Kernel)
	require.NotEmpty(t, m.Go)
}
