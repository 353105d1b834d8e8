package ring

import (
	"unsafe"

	us "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// The sizes that the kernel expects, checked when this is compiled.
var (
	_ [64]byte  = [unsafe.Sizeof(us.SubmissionQueueEntry64{})]byte{}
	_ [120]byte = [unsafe.Sizeof(us.IOURingParams{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(cqe{})]byte{}
	_ [8]byte   = [unsafe.Offsetof(cqe{}.res)]byte{}
	_ [40]byte  = [unsafe.Sizeof(bufReg{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(bufEntry{})]byte{}
	_ [12]byte  = [unsafe.Offsetof(bufEntry{}.id)]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcRegister{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(rsrcUpdate{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcUpdate2{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(unix.Timespec{})]byte{} // struct __kernel_timespec
	_ [16]byte  = [unsafe.Sizeof(unix.Iovec{})]byte{}
	_ [24]byte  = [fdControlSize]byte{}
)

// addressOf is the address of p's first byte in the form the kernel takes it. Whoever gives it away keeps p reachable: the memory
// does not move, but it must not be collected.
func addressOf(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// addressOfTime is the address of t.
func addressOfTime(t *unix.Timespec) uint64 { return uint64(uintptr(unsafe.Pointer(t))) }

// addressOfWord is the address of w.
func addressOfWord(w *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(w))) }

// fdControlSize is CMSG_SPACE of one descriptor.
const fdControlSize = (unix.SizeofCmsghdr+7)&^7 + 8

// An fdMessage is a message that carries a descriptor beside its bytes. The kernel reads it until the send completes.
type fdMessage struct {
	hdr     unix.Msghdr
	iov     unix.Iovec
	control [fdControlSize / 8]uint64
}

// set makes m carry p and fd and returns the address of its header.
func (m *fdMessage) set(p []byte, fd int) uint64 {
	m.iov.Base = unsafe.SliceData(p)
	m.iov.SetLen(len(p))
	m.hdr = unix.Msghdr{Iov: &m.iov, Control: (*byte)(unsafe.Pointer(&m.control))}
	m.hdr.SetIovlen(1)
	m.hdr.SetControllen(fdControlSize)
	c := (*unix.Cmsghdr)(unsafe.Pointer(&m.control))
	c.Level = unix.SOL_SOCKET
	c.Type = unix.SCM_RIGHTS
	c.SetLen(unix.CmsgLen(4))
	*(*int32)(unsafe.Add(unsafe.Pointer(&m.control), unix.CmsgLen(0))) = int32(fd)
	return uint64(uintptr(unsafe.Pointer(&m.hdr)))
}

// clear drops what m refers to.
func (m *fdMessage) clear() { m.iov.Base = nil }
