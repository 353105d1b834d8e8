package l2_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

const (
	crashKeys    = 40
	crashCallers = 8
)

// crashOptions are those of the store that is killed. With room for two to three
// times the keys, nothing is evicted before it is overwritten a few times.
var crashOptions = l2.Options{Size: 32 << 20, SegmentSize: 1 << 20, Memory: 4 << 20}

// crashLength is the length of a version of a key.
func crashLength(key, version int) int {
	return 16 + (key*7919+version*104729)%200000
}

// runWriter puts and deletes versions of keys until it is killed. On standard
// output it tells, for each: "begin key version" and "end key version". Odd keys
// are deleted at each fifth version.
func runWriter(dir string) error {
	opts := crashOptions
	var err error
	if opts.Engine, err = ring.ParseEngine(os.Getenv(ringtest.EngineVariable)); err != nil {
		return err
	}
	s, err := l2.Open(dir, opts)
	if err != nil {
		return err
	}
	base, err := strconv.Atoi(os.Getenv("L2_TEST_BASE"))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(word string, key, version int) {
		mu.Lock()
		defer mu.Unlock()
		// One write each: what is written before the kill arrives.
		fmt.Printf("%s %d %d\n", word, key, version)
	}
	go func() {
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			_ = s.Close() // the parent's wish; it kills us within
		}
	}()
	failed := make(chan error, crashCallers)
	for c := range crashCallers {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(base), uint64(c)))
			for version := base; ; version++ {
				key := rng.IntN(crashKeys/crashCallers)*crashCallers + c // each key has one writer
				tell("begin", key, version)
				var err error
				if deleted(key, version) {
					err = s.Delete(ctx, fmt.Appendf(nil, "key %d", key))
				} else {
					err = s.Put(ctx, fmt.Appendf(nil, "key %d", key), content(key, version, crashLength(key, version)))
				}
				if errors.Is(err, l2.ErrClosed) {
					select {} // until the kill
				}
				if err != nil {
					failed <- err
					return
				}
				tell("end", key, version)
			}
		}()
	}
	return <-failed
}

// deleted tells whether a version of a key is its absence.
func deleted(key, version int) bool { return key%2 == 1 && version%5 == 0 }

// A journal is what the writer told: of each key the last version acknowledged and
// the last begun.
type journal struct{ ended, begun [crashKeys]int }

// read takes what the writer tells, up to count lines or the end of it.
func (j *journal) read(in *bufio.Reader, count int) error {
	for range count {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		var word string
		var key, version int
		if _, err := fmt.Sscan(line, &word, &key, &version); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		if j.begun[key] = version; word == "end" {
			j.ended[key] = version
		}
	}
	return nil
}

// rounds is how often the writer is killed.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("L2_TEST_KILLS")); err == nil {
		return n
	}
	return 6
}

func TestAKilledWriterLosesNothingAcknowledged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	require.NoError(t, open(t, dir, crashOptions).Close()) // skips where it must
	var j journal
	var evicted, kept, unacknowledged int
	for round := range rounds() {
		base := (round + 1) * 100000
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVariable+"="+dir, fmt.Sprintf("L2_TEST_BASE=%d", base))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		in := bufio.NewReader(out)
		err = j.read(in, 1+rng.IntN(600))
		if round%3 == 2 { // in the middle of a clean stop, or right after it
			_, _ = stdin.Write([]byte{1})
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		}
		killed := cmd.Process.Kill()
		require.NoError(t, err)
		require.NoError(t, killed)
		require.ErrorIs(t, j.read(in, 1<<30), io.EOF) // what it told before it died
		require.Error(t, cmd.Wait())

		require.LessOrEqual(t, diskUse(t, dir), crashOptions.Size)
		s := open(t, dir, crashOptions)
		require.Zero(t, s.Stats().BadRecords)
		buf := make([]byte, 1<<20)
		underWay := uint64(0)
		for key := range crashKeys {
			if j.begun[key] != j.ended[key] {
				underWay++
			}
		}
		for key := range crashKeys {
			n, err := s.Get(ctx, fmt.Appendf(nil, "key %d", key), buf)
			ended, begun := j.ended[key], j.begun[key]
			if errors.Is(err, l2.ErrNotFound) {
				if ended != 0 && !deleted(key, ended) && !deleted(key, begun) {
					evicted++
				}
				continue
			}
			require.NoError(t, err)
			got := 0
			for _, version := range []int{ended, begun} {
				if version != 0 && !deleted(key, version) &&
					string(buf[:n]) == string(content(key, version, crashLength(key, version))) {
					got = version
				}
			}
			require.NotZero(t, got, "round %d: key %d has %d bytes of neither version %d nor %d", round, key, n, ended, begun)
			if kept++; got != ended {
				unacknowledged++
			}
			j.ended[key] = got // what was seen stays
		}
		require.LessOrEqual(t, s.Stats().BadRecords, underWay, "more than headers that went out beside their values")
		require.NoError(t, s.Close())
		half, err := filepath.Glob(filepath.Join(dir, "*.tmp")) // while it is open it may be making one itself
		require.NoError(t, err)
		require.Empty(t, half)
	}
	t.Logf("kept %d, of these not acknowledged %d; evicted %d", kept, unacknowledged, evicted)
	require.Positive(t, kept)
	require.Less(t, evicted, kept, "most of what was acknowledged is gone")
}

// diskUse returns what the directory takes on the disk, as du does, in bytes.
func diskUse(t *testing.T, dir string) int64 {
	t.Helper()
	var total int64
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			total += blocks(t, path)
		}
		return err
	}))
	return total
}
