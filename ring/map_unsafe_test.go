package ring_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mapOver maps the beginning of fd over the memory of p.
func mapOver(t *testing.T, p []byte, fd int) {
	t.Helper()
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(p)), uintptr(len(p)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	require.NoError(t, err)
}
