package l1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hugeSize is the size in bytes of the huge pages of a pool without a name, and
// of transparent ones.
const hugeSize = 2 << 20

// HugePages says whether a [Pool] is to have huge pages.
type HugePages uint8

// What may be asked for.
const (
	// HugeOff: pages as the system gives them, which are of 4 KiB nearly always.
	HugeOff HugePages = iota
	// HugeAuto: transparent huge pages where the kernel makes them, and none that
	// were set aside, which may be meant for others.
	HugeAuto
	// HugeTry: huge pages where they can be had, also those that were set aside,
	// else others as with HugeAuto and a line in the log that says why.
	HugeTry
	// HugeOn: huge pages, or [Open] returns a [*HugePagesError].
	HugeOn
)

// String returns the word for it, which [ParseHugePages] takes.
func (h HugePages) String() string {
	switch h {
	case HugeOff:
		return "off"
	case HugeAuto:
		return "auto"
	case HugeTry:
		return "try"
	case HugeOn:
		return "on"
	}
	return "unknown"
}

// ParseHugePages is the opposite of String.
func ParseHugePages(s string) (HugePages, error) {
	for _, h := range []HugePages{HugeOff, HugeAuto, HugeTry, HugeOn} {
		if s == h.String() {
			return h, nil
		}
	}
	return HugeOff, fmt.Errorf("l1: huge pages %q: give auto, off, try or on", s)
}

// A HugePagesError says why a pool cannot have huge pages. Need and Have are in
// pages of Size bytes, and 0 where the number of pages is not the reason.
type HugePagesError struct {
	Need, Have, Size int64
	Why              string
}

// Error says what is needed and what there is.
func (e *HugePagesError) Error() string {
	if e.Need == 0 {
		return "l1: no huge pages for the pool: " + e.Why
	}
	return fmt.Sprintf("l1: no huge pages for the pool: need %d pages of %s, have %d: %s", e.Need, sizeName(e.Size), e.Have, e.Why)
}

// sizeName is a page's size for people.
func sizeName(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	for n >= 1024 && n%1024 == 0 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatInt(n, 10) + " " + units[0]
}

// A pageKind says what the memory of a pool is made of.
type pageKind uint8

const (
	// pagesPlain: as the system gives them.
	pagesPlain pageKind = iota
	// pagesTransparent: huge where the system finds them.
	pagesTransparent
	// pagesHugetlb: huge ones that were set aside, which are never anything else.
	pagesHugetlb
)

// A pageChoice is what is known of a pool's pages before they are mapped.
type pageChoice struct {
	kind pageKind
	size int64 // of a page, in bytes
	// atFault is true if the kernel looks at the advice for huge pages at faults
	// only, not when pages are reserved.
	atFault bool
	// collapse is true if the kernel makes no huge pages by itself, and is told to
	// make one of what there is of small ones.
	collapse bool
}

// Pages says what pages the pool has, for people.
func (p *Pool) Pages() string {
	switch p.pages.kind {
	case pagesPlain:
	case pagesTransparent:
		return "transparent, up to " + sizeName(hugeSize)
	case pagesHugetlb:
		return sizeName(p.pages.size)
	}
	return sizeName(p.pages.size)
}

// PageSize returns the bytes of a page: addresses at which the mapping may be
// divided are multiples of it.
func (p *Pool) PageSize() int64 { return p.pages.size }

// roundUp returns size widened to whole pages.
func (c pageChoice) roundUp(size int64) int64 {
	if c.kind != pagesHugetlb {
		return size
	}
	return (size + c.size - 1) / c.size * c.size
}

// plainPages are the pages of a pool that asks for nothing.
func plainPages() pageChoice { return pageChoice{size: int64(os.Getpagesize())} }

// pagesOf says what pages files in the named pool's directory have. Want is true
// if they should be huge; why tells why they are not.
func (p *Pool) pagesOf(want bool) (c pageChoice, why string, err error) {
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(p.dir, &fs) }); err != nil {
		return c, "", fmt.Errorf("l1: look at the pool's file system: %w", err)
	}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		return pageChoice{kind: pagesHugetlb, size: fs.Bsize}, "", nil
	}
	c = plainPages()
	if !want {
		return c, "", nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.dir, &st); err != nil {
		return c, "", fmt.Errorf("l1: look at the pool's directory: %w", err)
	}
	m, ok := mountOf("/", st.Dev)
	if !ok || m.kind != "tmpfs" {
		return c, "the pool's directory is not on a tmpfs or hugetlbfs", nil
	}
	c, why = transparentPages("/", m.option("huge"))
	if why == "" {
		return c, "", nil
	}
	return c, fmt.Sprintf("%s is mounted with huge=%s (%s): mount -o remount,huge=within_size %[1]s", m.path, orNever(m.option("huge")), why), nil
}

// transparentPages says what pages a tmpfs of that huge= option has, and why not
// huge ones. Root is "/" outside tests.
func transparentPages(root, option string) (c pageChoice, why string) {
	c = plainPages()
	enabled := shmemEnabled(root)
	switch {
	case enabled == "":
		return c, "the kernel has no transparent huge pages"
	case enabled == "deny":
		return c, "shmem_enabled is deny"
	case enabled == "force", option == "always", option == "within_size", option == "advise":
		c.kind = pagesTransparent
		c.atFault = enabled != "force" && option == "advise"
		return c, ""
	}
	return c, "shmem_enabled is " + enabled
}

// shmemEnabled is the word in brackets of "always [never] ...", which is also
// the huge= option of the file system that memfds are on.
func shmemEnabled(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled"))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

func orNever(option string) string {
	if option == "" {
		return "never"
	}
	return option
}

// advise asks for transparent huge pages where the pool may have them.
func (p *Pool) advise() {
	if p.pages.kind != pagesTransparent {
		return
	}
	if err := unix.Madvise(p.mem, unix.MADV_HUGEPAGE); err != nil {
		p.log.Debug("no advice for huge pages", "err", err)
	}
}

// collapsing says whether the kernel can be told to make huge pages of a pool for which it makes none by itself. It is
// asked for the first one.
func (p *Pool) collapsing() bool {
	p.pages.collapse = true
	var none *HugePagesError
	switch err := p.proveHuge(); {
	case err == nil:
		p.pages.kind = pagesTransparent
		return true
	case !errors.As(err, &none):
		p.log.Debug("no huge page for the pool's beginning", "err", err) // who populates it is told
	}
	p.pages.collapse = false
	return false
}

// collapse has the kernel make huge pages where whole ones lie in the n bytes at off: it clears them all at once, which takes
// a tenth of the time that their small pages take one by one. What cannot be had stays small.
func (p *Pool) collapse(off, n int64) {
	end := (off + n) &^ (hugeSize - 1)
	begin := (off + hugeSize - 1) &^ (hugeSize - 1)
	if begin >= end {
		return
	}
	// There is to be one page of each: the kernel does not look at what has no page table.
	for at := begin; at < end; at += hugeSize {
		if unix.Madvise(p.mem[at:at+int64(os.Getpagesize())], unix.MADV_POPULATE_WRITE) != nil {
			return
		}
	}
	_ = unix.Madvise(p.mem[begin:end], unix.MADV_COLLAPSE)
}

// proveHuge reserves the beginning of a pool of transparent huge pages and looks
// whether the kernel gave one.
func (p *Pool) proveHuge() error {
	n := min(p.Size(), hugeSize)
	if n < hugeSize {
		return &HugePagesError{Size: hugeSize, Why: "the pool is smaller than a page"}
	}
	if err := p.Populate(0, n); err != nil {
		return err
	}
	huge, err := p.hugeMapped()
	if err != nil {
		return err
	}
	if huge == 0 {
		return &HugePagesError{Size: hugeSize, Why: "the kernel gave small ones where it may give transparent ones: its memory may be too fragmented"}
	}
	return nil
}

// hugeMapped returns how many bytes of the pool are mapped here by transparent
// huge pages.
func (p *Pool) hugeMapped() (int64, error) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, fmt.Errorf("l1: look for huge pages: %w", err)
	}
	// 7f0000000000-7f0040000000 rw-s 00000000 00:01 12 /memfd:slotcache_l1_pool
	// ShmemPmdMapped:     2048 kB
	begin := strings.TrimPrefix(fmt.Sprintf("%p-", p.mem), "0x")
	mine, sum := false, int64(0)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasSuffix(f[0], ":") {
			mine = strings.HasPrefix(line, begin)
			continue
		}
		if mine && (f[0] == "ShmemPmdMapped:" || f[0] == "FilePmdMapped:") {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("l1: look for huge pages: %w", err)
			}
			sum += kib << 10
		}
	}
	return sum, nil
}

// openTrying opens a pool with huge pages, or without if that is the reason that
// it fails.
func openTrying(cfg Config, size int64) (*Pool, error) {
	p, err := openOnce(cfg, size, true)
	var none *HugePagesError
	if !errors.As(err, &none) {
		return p, err
	}
	p, err = openOnce(cfg, size, false)
	if err == nil {
		p.log.Warn("the pool has no huge pages of its own", "why", none.Error(), "pages", p.Pages())
	}
	return p, err
}
