package flags

import (
	"fmt"
	"math"

	"github.com/docker/go-units"
)

// Size is a number of bytes given as 65536, 64KiB, 256m or 1.5GiB; every unit is binary.
type Size int64

// UnmarshalText reads a size from the command line.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := units.RAMInBytes(string(text))
	if err != nil || n < 0 || n == math.MaxInt64 {
		return fmt.Errorf("%q is not a size: give bytes or a binary unit, as in 256MiB", text)
	}
	*s = Size(n)
	return nil
}

// String writes the size with the largest unit below it.
func (s Size) String() string { return units.BytesSize(float64(s)) }
