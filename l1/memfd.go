package l1

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// makeMemfd makes a memfd that nobody can resize: a shrunk file would make
// every access behind its end fault.
func (p *Pool) makeMemfd(size int64) error {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	const label = "slotcache_l1_pool"
	fd, err := unix.MemfdCreate(label, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(label, flags)
	}
	if err != nil {
		return fmt.Errorf("l1: memfd: %w", err)
	}
	p.fd = fd
	// The mode matters to who was given a read-only descriptor: it must not do
	// to open it again for writing.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return fmt.Errorf("l1: memfd mode: %w", err)
	}
	if err := retry(func() error { return unix.Ftruncate(fd, size) }); err != nil {
		return fmt.Errorf("l1: memfd of %d bytes: %w", size, err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("l1: memfd seals: %w", err)
	}
	return nil
}
