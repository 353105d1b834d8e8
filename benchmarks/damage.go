package benchmarks

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// A damage is what was done to a closed store.
type damage struct{ flips, cuts int }

// harm flips bits in segment files, or cuts them: one in four times a cut, and half of the
// flips in the blocks at a file's ends, where the store keeps what it starts from.
func harm(r *rand.Rand, dir string) (damage, error) {
	var d damage
	files, err := filepath.Glob(filepath.Join(dir, "seg-*.slc"))
	if err != nil || len(files) == 0 {
		return d, err
	}
	for range 1 + r.IntN(3) {
		path := files[r.IntN(len(files))]
		info, err := os.Stat(path)
		if err != nil {
			return d, fmt.Errorf("damage: %w", err)
		}
		if r.IntN(4) == 0 {
			if err := os.Truncate(path, r.Int64N(info.Size()+1)); err != nil {
				return d, fmt.Errorf("damage: %w", err)
			}
			d.cuts++
			continue
		}
		for range 1 + r.IntN(20) {
			if err := flip(r, path, info.Size()); err != nil {
				return d, err
			}
			d.flips++
		}
	}
	return d, nil
}

// flip turns one bit of a file.
func flip(r *rand.Rand, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("damage: %w", err)
	}
	defer f.Close() //nolint:errcheck // written with WriteAt, whose error counts
	const ends = 4 * pageSize
	at := r.Int64N(max(size, 1))
	if size > 2*ends && r.IntN(2) == 0 {
		at = r.Int64N(2 * ends)
		if at >= ends {
			at += size - 2*ends
		}
	}
	var b [1]byte
	if n, err := f.ReadAt(b[:], at); n != 1 {
		return fmt.Errorf("damage: read %s at %d: %w", path, at, err)
	}
	b[0] ^= 1 << r.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("damage: %w", err)
	}
	return nil
}

// diskUse is how many bytes of disk a directory takes, as du counts, and how many of these
// are segment files'.
func diskUse(dir string) (all, segments int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		all += st.Blocks * 512
		if matched, _ := filepath.Match("seg-*.slc", filepath.Base(path)); matched {
			segments += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("disk use: %w", err)
	}
	return all, segments, nil
}
