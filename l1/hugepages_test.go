package l1

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/l1test"
)

const mib = 1 << 20

// logged returns a logger and what it was told.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// use populates a pool and touches all of it, as server and worker would.
func use(t *testing.T, p *Pool) {
	t.Helper()
	size := p.Size()
	require.NoError(t, p.Populate(1, 4097), "less than a page")
	require.NoError(t, p.Populate(0, size))
	src := bytes.Repeat([]byte("some pages"), int(size)/10+1)[:size]
	require.NoError(t, CopyIn(p.Bytes(0, size), src))
	worker, err := unix.Mmap(p.Fd(), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Madvise(worker, unix.MADV_DONTFORK))
	require.NoError(t, unix.Madvise(worker, unix.MADV_POPULATE_WRITE))
	require.Equal(t, xxh3.Hash(src), xxh3.Hash(worker))
	require.NoError(t, unix.Munmap(worker))
	fd, err := p.ReadOnlyFd()
	require.NoError(t, err)
	reader, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Madvise(reader, unix.MADV_POPULATE_READ))
	require.Equal(t, xxh3.Hash(src), xxh3.Hash(reader))
	require.NoError(t, unix.Munmap(reader))
	require.NoError(t, unix.Close(fd))
}

func TestPoolOfHugePagesThatWereSetAside(t *testing.T) {
	l1test.HugePages(t, 16)
	p := open(t, Config{Size: 31*mib + 5, HugePages: HugeOn})
	require.Equal(t, int64(32*mib), p.Size(), "rounded up to whole pages")
	require.Equal(t, int64(2*mib), p.PageSize())
	require.Equal(t, "2 MiB", p.Pages())
	require.Zero(t, l1test.HugePagesFree(t), "all are set aside before the first is touched")
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(p.Fd(), &st))
	require.Equal(t, int64(2*mib), st.Blksize, "workers see the pages' size")
	require.Equal(t, uint32(0o600), st.Mode&0o777)
	for _, size := range []int64{0, 30 * mib, 34 * mib} {
		require.ErrorIs(t, unix.Ftruncate(p.Fd(), size), unix.EPERM)
	}
	use(t, p)
	require.Equal(t, int64(1<<63-1), p.Room(0), "what is set aside needs no free memory")
	require.NoError(t, p.Close())
	require.Equal(t, 16, l1test.HugePagesFree(t), "and all are given back")
}

func TestTooFewHugePagesAreARefusalOrOthers(t *testing.T) {
	for name, have := range map[string]int{"none": 0, "half": 8} {
		t.Run(name, func(t *testing.T) {
			l1test.HugePages(t, have)
			_, err := Open(Config{Size: 32 * mib, HugePages: HugeOn})
			var none *HugePagesError
			require.ErrorAs(t, err, &none)
			require.Equal(t, int64(16), none.Need)
			require.Equal(t, int64(have), none.Have)
			require.ErrorContains(t, err, "need 16 pages of 2 MiB, have")
			require.ErrorContains(t, err, "vm.nr_hugepages")
			require.Equal(t, have, l1test.HugePagesFree(t), "a refusal keeps none")

			log, text := logged()
			p := open(t, Config{Size: 32*mib - 4096, HugePages: HugeTry, Logger: log})
			require.Equal(t, int64(32*mib-4096), p.Size())
			require.Equal(t, 1, strings.Count(text.String(), "\n"), "one line: %s", text)
			require.Contains(t, text.String(), "need 16 pages of 2 MiB, have")
			use(t, p)
			require.Equal(t, have, l1test.HugePagesFree(t))
		})
	}
}

// The kernel lets a group map more than it may have, and tells at the first touch
// by a signal.
func TestAGroupsLimitOnHugePagesIsKnownAtTheStart(t *testing.T) {
	l1test.HugePages(t, 8)
	g := l1test.NewGroup(t, "hugetlb")
	g.Limit("hugetlb.2MB", 2*mib)
	say := func(huge string) string {
		cmd, in, out, said := startChild(t, childHold, "", 4*mib)
		require.Equal(t, "hold", said)
		g.Add(cmd.Process.Pid)
		_, err := io.WriteString(in, huge+"\n")
		require.NoError(t, err)
		line, err := out.ReadString('\n')
		require.NoError(t, err)
		kill(t, cmd)
		return line
	}
	said := say("on")
	require.Contains(t, said, "need 2 pages of 2 MiB, have 1")
	require.Contains(t, said, "hugetlb.2MB.")
	said = say("try")
	require.Contains(t, said, "ready, pages")
	require.NotContains(t, said, "pages 2 MiB")
	g.Limit("hugetlb.2MB", 4*mib)
	require.Contains(t, say("on"), "ready, pages 2 MiB")
}

func TestHugePagesTakenMeanwhileAreNoSpace(t *testing.T) {
	l1test.HugePages(t, 4)
	p := open(t, Config{Size: 8 * mib, HugePages: HugeOn})
	// A worker that punches holes gives pages away that others then take.
	require.NoError(t, p.Populate(0, 8*mib))
	require.NoError(t, unix.Fallocate(p.Fd(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4*mib, 4*mib))
	other := open(t, Config{Size: 4 * mib, HugePages: HugeOn})
	require.NoError(t, other.Populate(0, 4*mib))
	require.ErrorIs(t, CopyIn(p.Bytes(4*mib, 4096), make([]byte, 4096)), ErrFault, "no signal ends us")
	var full ErrNoSpace
	require.ErrorAs(t, p.Populate(4*mib, 8*mib), &full)
	require.Equal(t, ErrNoSpace{Need: 4 * mib, Have: 0}, full)
}

func TestTransparentHugePagesOfATmpfs(t *testing.T) {
	for option, huge := range map[string]bool{"always": true, "within_size": true, "advise": true, "never": false} {
		t.Run(option, func(t *testing.T) {
			dir := l1test.Mount(t, "tmpfs", "size=64m,huge="+option)
			cfg := named(dir, "x", 32*mib)
			cfg.HugePages = HugeOn
			p, err := Open(cfg)
			if huge {
				if err != nil && strings.Contains(err.Error(), "fragmented") {
					t.Skip(err)
				}
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, p.Close()) })
				require.Equal(t, "transparent, up to 2 MiB", p.Pages())
				use(t, p)
				mapped, err := p.hugeMapped()
				require.NoError(t, err)
				require.Positive(t, mapped)
				t.Logf("%d of %d bytes are mapped by huge pages", mapped, p.Size())
				return
			}
			var none *HugePagesError
			require.ErrorAs(t, err, &none)
			require.ErrorContains(t, err, "huge=never")
			require.ErrorContains(t, err, dir)
			require.Empty(t, files(t, dir))
			log, text := logged()
			cfg.HugePages, cfg.Logger = HugeTry, log
			p = open(t, cfg)
			require.Contains(t, text.String(), "huge=never")
			use(t, p)
		})
	}
}

func TestHugePagesAreMadeWhereTheKernelGivesNone(t *testing.T) {
	l1test.HugePages(t, 0)
	l1test.ShmemEnabled(t, "never")
	dir := l1test.Mount(t, "tmpfs", "size=64m,huge=never")
	for name, cfg := range map[string]Config{"memfd": {Size: 8*mib + 4096}, "named": named(dir, "x", 8*mib+4096)} {
		t.Run(name, func(t *testing.T) {
			off := open(t, cfg)
			use(t, off)
			mapped, err := off.hugeMapped()
			require.NoError(t, err)
			require.Zero(t, mapped, "who does not ask gets none")
			require.Equal(t, "4 KiB", off.Pages())
			require.NoError(t, off.Close())

			cfg.HugePages = HugeAuto
			p := open(t, cfg)
			if p.Pages() == "4 KiB" {
				t.Skip("the kernel makes none: it is older than 6.1, or its memory too fragmented")
			}
			use(t, p)
			mapped, err = p.hugeMapped()
			require.NoError(t, err)
			require.Positive(t, mapped)
			t.Logf("%d of %d bytes are mapped by huge pages", mapped, p.Size())
			sum, err := Sum(p.Bytes(0, p.Size()))
			require.NoError(t, err)
			require.NoError(t, p.Populate(0, p.Size()))
			again, err := Sum(p.Bytes(0, p.Size()))
			require.NoError(t, err)
			require.Equal(t, sum, again, "what is there stays")
		})
	}
}

func TestATmpfsThatFillsUpMeanwhileIsNoSpaceForHugePages(t *testing.T) {
	dir := l1test.Mount(t, "tmpfs", "size=16m,huge=never")
	cfg := named(dir, "x", 8*mib)
	cfg.HugePages = HugeAuto
	p := open(t, cfg)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, 11*mib), 0o600))
	var full ErrNoSpace
	require.ErrorAs(t, p.Populate(0, 8*mib), &full)
	require.NoError(t, os.Remove(filepath.Join(dir, "other")))
	use(t, p)
}

func TestTransparentHugePagesOfAMemfd(t *testing.T) {
	l1test.HugePages(t, 0)
	l1test.ShmemEnabled(t, "advise")
	log, text := logged()
	p := open(t, Config{Size: 32 * mib, HugePages: HugeTry, Logger: log})
	require.Equal(t, "transparent, up to 2 MiB", p.Pages())
	require.Contains(t, text.String(), "transparent")
	use(t, p)
	mapped, err := p.hugeMapped()
	require.NoError(t, err)
	if mapped == 0 {
		t.Skip("the kernel gave no huge page: its memory may be too fragmented")
	}
	off := open(t, Config{Size: 8 * mib})
	use(t, off)
	mapped, err = off.hugeMapped()
	require.NoError(t, err)
	require.Zero(t, mapped, "who does not ask gets none")
}

func TestNamedPoolOnAHugetlbfs(t *testing.T) {
	l1test.HugePages(t, 8)
	dir := l1test.Mount(t, "hugetlbfs", "pagesize=2M")
	for _, huge := range []HugePages{HugeOff, HugeTry, HugeOn} {
		cfg := named(dir, "x", 15*mib)
		cfg.HugePages = huge
		p := open(t, cfg)
		require.Equal(t, int64(16*mib), p.Size())
		require.Len(t, files(t, dir), 1)
		use(t, p)
		require.NoError(t, p.Close())
		require.Empty(t, files(t, dir))
	}
	cfg := named(dir, "x", 18*mib)
	cfg.HugePages = HugeOn
	_, err := Open(cfg)
	require.ErrorContains(t, err, "need 9 pages of 2 MiB, have 8")
	require.Empty(t, files(t, dir))
}

func TestADirectoryThatIsNoTmpfsHasNoHugePages(t *testing.T) {
	cfg := named(t.TempDir(), "x", mib)
	cfg.HugePages = HugeOn
	_, err := Open(cfg)
	require.ErrorContains(t, err, "not on a tmpfs")
}

func TestWordsOfHugePages(t *testing.T) {
	for _, h := range []HugePages{HugeOff, HugeAuto, HugeTry, HugeOn} {
		got, err := ParseHugePages(h.String())
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	_, err := ParseHugePages("maybe")
	require.ErrorContains(t, err, "off, try or on")
	for n, want := range map[int64]string{4096: "4 KiB", 2 * mib: "2 MiB", 1 << 30: "1 GiB", 1 << 40: "1024 GiB", 5: "5 B", 0: "0 B"} {
		require.Equal(t, want, sizeName(n))
	}
}

// system writes the files of a small /proc and /sys.
func system(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestWhatMayBeSetAsideIsReadFromTheSystem(t *testing.T) {
	const pages = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	require.Zero(t, hugetlbFree(t.TempDir(), hugeSize))
	require.Equal(t, int64(10), hugetlbFree(system(t, map[string]string{
		pages + "free_hugepages": "9\n", pages + "resv_hugepages": "3\n",
		pages + "nr_overcommit_hugepages": "5\n", pages + "surplus_hugepages": "1\n",
	}), hugeSize))
	const (
		info2 = "29 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
		info1 = "30 1 0:27 /box /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		left  int64
	}{
		"no groups": {nil, 1<<63 - 1},
		"no limit": {map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": info2,
			"sys/fs/cgroup/a/hugetlb.2MB.max": "max\n", "sys/fs/cgroup/a/hugetlb.2MB.current": "0\n",
		}, 1<<63 - 1},
		"a limit above": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": info2,
			"sys/fs/cgroup/a/hugetlb.2MB.max": "8388608\n", "sys/fs/cgroup/a/hugetlb.2MB.current": "2097152\n",
			"sys/fs/cgroup/a/b/hugetlb.1GB.max": "0\n",
		}, 6 * mib},
		"on what is set aside": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": info2,
			"sys/fs/cgroup/hugetlb.2MB.rsvd.max": "2097152\n",
		}, 2 * mib},
		"version one in a container": {map[string]string{
			"proc/self/cgroup": "7:hugetlb:/box/x\n0::/\n", "proc/self/mountinfo": info1,
			"sys/fs/cgroup/hugetlb/x/hugetlb.2MB.limit_in_bytes": "4194304\n",
			"sys/fs/cgroup/hugetlb/x/hugetlb.2MB.usage_in_bytes": "8388608\n",
		}, 0},
	} {
		left, _ := groupsLeft(system(t, c.files), hugeSize)
		require.Equal(t, c.left, left, name)
	}
}

func TestTheSystemSaysWhoGetsTransparentPages(t *testing.T) {
	const file = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
	for _, c := range []struct {
		enabled, option string
		kind            pageKind
		atFault         bool
	}{
		{"", "always", pagesPlain, false},
		{"always within_size advise [never] deny force", "", pagesPlain, false},
		{"always within_size advise [never] deny force", "never", pagesPlain, false},
		{"always within_size advise [never] deny force", "always", pagesTransparent, false},
		{"always within_size advise [never] deny force", "within_size", pagesTransparent, false},
		{"always within_size advise [never] deny force", "advise", pagesTransparent, true},
		{"always within_size advise never [deny] force", "always", pagesPlain, false},
		{"always within_size advise never deny [force]", "", pagesTransparent, false},
		{"always within_size advise never deny [force]", "advise", pagesTransparent, false},
	} {
		files := map[string]string{}
		if c.enabled != "" {
			files[file] = c.enabled
		}
		got, why := transparentPages(system(t, files), c.option)
		require.Equal(t, c.kind, got.kind, "%+v", c)
		require.Equal(t, c.atFault, got.atFault, "%+v", c)
		require.Equal(t, c.kind == pagesPlain, why != "", "%+v", c)
	}
}

func BenchmarkPopulateHugePages(b *testing.B) {
	const size = 64 * mib
	l1test.HugePages(b, size/l1test.HugeSize)
	b.SetBytes(size)
	for b.Loop() {
		p, err := Open(Config{Size: size, HugePages: HugeOn})
		require.NoError(b, err)
		require.NoError(b, p.Populate(0, size))
		require.NoError(b, p.Close())
	}
}
