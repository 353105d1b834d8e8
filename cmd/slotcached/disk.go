package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/slotcache/slotcache/cmd/flags"
)

// The disk store's size when none is given: a tenth of what is free, within these.
const (
	l2SizeMin = 1 << 30
	l2SizeMax = 16 << 30
)

// defaultL2Dir is the user's cache directory.
func defaultL2Dir() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "slotcache"), nil
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("neither XDG_CACHE_HOME nor HOME names a directory")
	}
	return filepath.Join(home, ".cache", "slotcache"), nil
}

// defaultL2Size is a tenth of what the file system of dir has free, the store that is
// there already counting as free, so that the size stays the same from start to start.
func defaultL2Size(dir string) (int64, error) {
	free, err := room(dir)
	if err != nil {
		return 0, err
	}
	size := min(free/10, l2SizeMax) &^ (1<<20 - 1)
	if size < l2SizeMin {
		return 0, fmt.Errorf("a tenth of the %v free at %s is less than %v", flags.Size(free), dir, flags.Size(l2SizeMin))
	}
	return size, nil
}

// warnL2Size warns of a store that can never have its size.
func warnL2Size(dir string, size int64, log *slog.Logger) {
	if free, err := room(dir); err == nil && size > free {
		log.Warn("--l2-size is more than the disk store's file system has: it will take what there is, in a few segments of the size that goes with --l2-size; give it less, and more will fit",
			"size", flags.Size(size), "has", flags.Size(free), "dir", dir)
	}
}

// room is how many bytes a store in dir could take: those that are free, and its own.
func room(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(existing(dir), &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail)*st.Bsize + usage(dir), nil
}

// existing is the nearest directory at or above dir that is there.
func existing(dir string) string {
	for {
		_, err := os.Stat(dir)
		up := filepath.Dir(dir)
		if err == nil || up == dir {
			return dir
		}
		dir = up
	}
}

// usage is how many bytes on disk the files of dir take.
func usage(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be seen counts nothing
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum
}
