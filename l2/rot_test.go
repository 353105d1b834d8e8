package l2_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/l2"
)

// A rotting is a store whose files lose bits, and what it must hold.
type rotting struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string
	opts l2.Options
	s    *l2.Store
	want [][]byte // by number; the value of "key N"
}

// rotSizes are sizes of packed and of aligned values, and of none at all.
var rotSizes = []int{0, 1, 100, 511, 3000, 4095, 4096, 4097, 20_000, 32_767, 32_768, 70_000, 200_000}

func newRotting(t *testing.T, seed uint64) *rotting {
	t.Helper()
	t.Logf("seed %d", seed)
	r := &rotting{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		// So large that nothing is evicted: what is missing rotted.
		opts: l2.Options{Size: 1 << 30, SegmentSize: 4 << 20, Memory: 8 << 20},
	}
	r.s = open(t, r.dir, r.opts)
	for i := range 2 * len(rotSizes) {
		r.want = append(r.want, value(uint64(i), rotSizes[i%len(rotSizes)]))
		r.put(i)
	}
	for i := range 12 { // filled and sealed segments, with footers
		require.NoError(t, r.s.Put(ctx, fmt.Appendf(nil, "bulk %d", i), value(uint64(i), 1<<20)))
	}
	return r
}

func (r *rotting) put(i int) {
	r.t.Helper()
	require.NoError(r.t, r.s.Put(ctx, fmt.Appendf(nil, "key %d", i), r.want[i]))
}

func (r *rotting) reopen() {
	r.t.Helper()
	require.NoError(r.t, r.s.Close())
	r.s = open(r.t, r.dir, r.opts)
}

// flip turns one bit, anywhere in what was ever written of the store's segments.
func (r *rotting) flip() {
	r.t.Helper()
	files := segmentFiles(r.t, r.dir)
	f, err := os.OpenFile(files[r.rng.IntN(len(files))], os.O_RDWR, 0)
	require.NoError(r.t, err)
	var block [4096]byte
	for {
		at := r.rng.Int64N(r.opts.SegmentSize/4096) * 4096
		_, err := f.ReadAt(block[:], at)
		require.NoError(r.t, err)
		if block == [4096]byte{} && r.rng.IntN(50) > 0 {
			continue // most likely never written
		}
		block[r.rng.IntN(4096)] ^= 1 << r.rng.IntN(8)
		_, err = f.WriteAt(block[:], at)
		require.NoError(r.t, err)
		break
	}
	require.NoError(r.t, f.Close())
}

// missing reads all and returns which are not there. No byte may be wrong.
func (r *rotting) missing() (gone []int) {
	r.t.Helper()
	buf := make([]byte, 200_000)
	for i, want := range r.want {
		for k := range buf[:len(want)] {
			buf[k] = 0xA5
		}
		key := fmt.Appendf(nil, "key %d", i)
		n, err := r.s.Get(ctx, key, buf)
		if errors.Is(err, l2.ErrNotFound) {
			gone = append(gone, i)
			requireNoValue(r.t, r.s, string(key))
			continue
		}
		require.NoError(r.t, err)
		require.True(r.t, string(want) == string(buf[:n]), "key %d has wrong bytes", i)
	}
	return gone
}

// Bit rot in the middle of a file: of 1,000 bits turned one at a time, anywhere, in values,
// keys, lengths, headers and footers, each is harmless or found before a reader sees a byte.
// What is found is counted once, its entry and its bytes are gone, and it can be stored again.
func TestOneFlippedBitIsHarmlessOrFound(t *testing.T) {
	r := newRotting(t, rand.Uint64())
	found, flips := 0, 1000
	if cmdtest.Race {
		flips /= 10
	}
	for i := range flips {
		r.flip()
		if i%20 == 19 { // what the start reads rots as well
			r.reopen()
		}
		before := r.s.Stats()
		gone := r.missing()
		after := r.s.Stats()
		bad := int(after.BadRecords - before.BadRecords)
		require.Equal(t, bad, int(before.Records-after.Records), "each bad record is gone and counted")
		require.LessOrEqual(t, bad, len(gone))
		if i%20 != 19 {
			require.Equal(t, bad, len(gone))
		}
		var lost uint64
		for _, k := range gone[:min(bad, len(gone))] {
			lost += uint64(len(r.want[k]))
		}
		if bad == len(gone) {
			require.Equal(t, lost, before.LiveBytes-after.LiveBytes, "their bytes are given back")
		}
		found += len(gone)
		for _, k := range gone {
			r.put(k)
		}
		if len(gone) > 0 {
			require.Empty(t, r.missing())
		}
	}
	t.Logf("%d of %d flips cost a value", found, flips)
	require.Positive(t, found)
}

// Physical against logical bytes: 100,000 values of 100 bytes take no more disk than the
// store may.
func TestManySmallValuesStayWithinTheCapOnDisk(t *testing.T) {
	const length = 100
	count := 100_000
	if cmdtest.Race {
		count /= 10
	}
	dir := t.TempDir()
	opts := l2.Options{Size: 64 << 20, Memory: 8 << 20, MaxEntries: count}
	s := open(t, dir, opts)
	var work []func() error
	for i := range count {
		work = append(work, func() error { return s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), length)) })
	}
	atOnce(t, work)
	require.LessOrEqual(t, diskUse(t, dir), opts.Size)
	records := s.Stats().Records
	t.Logf("%d of %d fit", records, count)
	// How many a write takes along is a matter of time. Alone each has a block, and its header another.
	require.Greater(t, records, uint64(opts.Size/(2*4096)*3/4), "however few of them a write took along")
	require.NoError(t, s.Close())
	s = open(t, dir, opts)
	require.Equal(t, records, s.Stats().Records)
	require.LessOrEqual(t, diskUse(t, dir), opts.Size)
	requireValue(t, s, fmt.Sprintf("key %d", count-100), value(uint64(count-100), length))
}

// Alignment: on a device of 4,096-byte sectors values that end anywhere come back the same.
func TestADeviceOfLargeSectorsKeepsEveryByte(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 128<<20))
	out, err := exec.Command("losetup", "-f", "--show", "--sector-size", "4096", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	made := exec.Command("mkfs.ext4", "-q", "-m", "0", device).Run()
	path := t.TempDir()
	if made == nil {
		made = unix.Mount(device, path, "ext4", 0, "")
	}
	require.NoError(t, exec.Command("losetup", "-d", device).Run()) // as soon as it is not mounted any more
	require.NoError(t, made)
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
	mounttest.Require(t)
	dir := filepath.Join(path, "store")
	opts := l2.Options{Size: 64 << 20, SegmentSize: 4 << 20, Memory: 8 << 20}
	s := open(t, dir, opts)
	t.Cleanup(func() { require.NoError(t, s.Close()) }) // before it is unmounted
	sizes := []int{0, 1, 511, 512, 513, 4095, 4096, 4097, 32_767, 32_768, 32_769, 1<<20 - 1, 1 << 20, 1<<20 + 1}
	for i, n := range sizes {
		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), n)))
	}
	for i, n := range sizes {
		requireValue(t, s, fmt.Sprintf("key %d", i), value(uint64(i), n))
	}
	require.True(t, s.Stats().Direct)
	require.NoError(t, s.Close())
	s = open(t, dir, opts)
	for i, n := range sizes {
		requireValue(t, s, fmt.Sprintf("key %d", i), value(uint64(i), n))
	}
	require.NoError(t, s.Close())
}
