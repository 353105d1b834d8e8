package l1

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// makeMemfd makes a memfd that nobody can resize: a shrunk file would make
// every access behind its end fault. It returns the size that the file has.
func (p *Pool) makeMemfd(cfg Config, size int64, huge bool) (int64, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if huge {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
		p.pages = pageChoice{kind: pagesHugetlb, size: hugeSize}
		size = p.pages.roundUp(size)
		if err := checkGroups("/", size, hugeSize); err != nil {
			return size, err
		}
	} else if cfg.HugePages != HugeOff {
		p.pages, _ = transparentPages("/", shmemEnabled("/"))
	}
	const label = "slotcache_l1_pool"
	fd, err := unix.MemfdCreate(label, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(label, flags)
	}
	if err != nil && huge {
		return size, &HugePagesError{Size: hugeSize, Why: "the kernel has none of 2 MiB: " + err.Error()}
	}
	if err != nil {
		return size, fmt.Errorf("l1: memfd: %w", err)
	}
	p.fd = fd
	return size, p.sealMemfd(size)
}

// sealMemfd sizes and seals the new file.
func (p *Pool) sealMemfd(size int64) error {
	// The mode matters to who was given a read-only descriptor: it must not do
	// to open it again for writing.
	if err := unix.Fchmod(p.fd, 0o600); err != nil {
		return fmt.Errorf("l1: memfd mode: %w", err)
	}
	if err := retry(func() error { return unix.Ftruncate(p.fd, size) }); err != nil {
		return fmt.Errorf("l1: memfd of %d bytes: %w", size, err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("l1: memfd seals: %w", err)
	}
	return nil
}
