package ring

import (
	"fmt"
	"unsafe"

	us "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// openQueue sets up a ring of the kernel's with room for cqEntries completions, not yet enabled, and maps its queues.
func openQueue(sqEntries, cqEntries uint32) (*queue, error) {
	p := us.IOURingParams{
		Flags: us.IORING_SETUP_CLAMP | us.IORING_SETUP_CQSIZE | us.IORING_SETUP_R_DISABLED |
			setupSubmitAll | setupSingleIssuer | setupDeferTaskrun | setupTaskrunFlag,
		CQEntries: cqEntries,
	}
	fd, err := us.IOURingSetup(uint(sqEntries), &p)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	q := &queue{fd: fd, enterFD: fd}
	if err := q.mapQueues(&p); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// mapQueues maps what the kernel set up.
func (q *queue) mapQueues(p *us.IOURingParams) error {
	if p.Features&featuresNeeded != featuresNeeded {
		return fmt.Errorf("features %#x, need %#x: %w", p.Features, featuresNeeded, unix.ENOSYS)
	}
	size := max(p.SQOffset.Array+p.SQEntries*4, p.CQOffset.Cqes+p.CQEntries*uint32(unsafe.Sizeof(cqe{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	var err error
	if q.ringMem, err = unix.Mmap(q.fd, int64(us.IORING_OFF_SQ_RING), int(size), prot, flags); err != nil {
		return fmt.Errorf("map the queues: %w", err)
	}
	if q.sqeMem, err = unix.Mmap(q.fd, int64(us.IORING_OFF_SQES), int(p.SQEntries)*64, prot, flags); err != nil {
		return fmt.Errorf("map the submissions: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&q.ringMem[off])) }
	q.sqHead, q.sqTail, q.sqFlags = word(p.SQOffset.Head), word(p.SQOffset.Tail), word(p.SQOffset.Flags)
	q.cqHead, q.cqTail, q.cqLost = word(p.CQOffset.Head), word(p.CQOffset.Tail), word(p.CQOffset.Overflow)
	q.sqMask, q.cqMask = p.SQEntries-1, p.CQEntries-1
	q.sqes = unsafe.Slice((*us.SubmissionQueueEntry64)(unsafe.Pointer(&q.sqeMem[0])), p.SQEntries)
	q.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&q.ringMem[p.CQOffset.Cqes])), p.CQEntries)
	for i, a := uint32(0), unsafe.Slice(word(p.SQOffset.Array), p.SQEntries); i < p.SQEntries; i++ {
		a[i] = i // submissions are consumed in the order of the array: entry i is always submission i
	}
	return nil
}

// registerRing spares the kernel the look-up of the ring's descriptor at each enter of this thread. It is an optimisation: where it
// is refused, the descriptor goes on being used.
func (q *queue) registerRing() {
	u := rsrcUpdate{offset: ^uint32(0), data: uint64(q.fd)}
	_, _, errno := unix.Syscall6(us.SYS_IO_URING_REGISTER, uintptr(q.fd), registerRingFDs, uintptr(unsafe.Pointer(&u)), 1, 0, 0)
	if errno == 0 {
		q.enterFD, q.enterFlags = int(u.offset), enterRegisteredRing
	}
}

// unregisterRing undoes registerRing: as long as it is registered, the ring would live on.
func (q *queue) unregisterRing() {
	if q.enterFlags == 0 {
		return
	}
	u := rsrcUpdate{offset: uint32(q.enterFD)}
	_, _, _ = unix.Syscall6(us.SYS_IO_URING_REGISTER, uintptr(q.fd), unregisterRingFDs, uintptr(unsafe.Pointer(&u)), 1, 0, 0)
	q.enterFD, q.enterFlags = q.fd, 0
}

// enable makes the calling thread the ring's.
func (q *queue) enable() error {
	return us.IOURingRegister(q.fd, us.IORING_REGISTER_ENABLE_RINGS, nil, 0)
}

// registerSparse makes an empty table of n buffers or files.
func (q *queue) registerSparse(code uint8, n uint32) error {
	r := rsrcRegister{count: n, flags: rsrcRegisterSparse}
	return us.IOURingRegister(q.fd, code, unsafe.Pointer(&r), uint32(unsafe.Sizeof(r)))
}

// unregister drops the table of buffers or files at once, not when the kernel gets to it after the ring was closed.
func (q *queue) unregister(code uint8) error { return us.IOURingRegister(q.fd, code, nil, 0) }

// registerBuffer enters p in the table of buffers.
func (q *queue) registerBuffer(index uint32, p []byte) error {
	iov := unix.Iovec{Base: unsafe.SliceData(p), Len: uint64(len(p))}
	r := rsrcUpdate2{offset: index, data: uint64(uintptr(unsafe.Pointer(&iov))), count: 1}
	return us.IOURingRegister(q.fd, registerBuffersUpdate, unsafe.Pointer(&r), uint32(unsafe.Sizeof(r)))
}

// registerFile enters fd in the table of files.
func (q *queue) registerFile(index uint32, fd int) error {
	n := int32(fd)
	r := rsrcUpdate{offset: index, data: uint64(uintptr(unsafe.Pointer(&n)))}
	_, _, errno := unix.Syscall6(us.SYS_IO_URING_REGISTER, uintptr(q.fd), uintptr(us.IORING_REGISTER_FILES_UPDATE),
		uintptr(unsafe.Pointer(&r)), 1, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// registerBuffers makes mem, n entries of a buffer ring, the buffers of group.
func (q *queue) registerBufferRing(group uint16, mem []byte, n uint32) error {
	r := bufReg{addr: addressOf(mem), entries: n, group: group}
	return us.IOURingRegister(q.fd, registerPbufRing, unsafe.Pointer(&r), 1)
}

// unregisterBufferRing undoes registerBufferRing.
func (q *queue) unregisterBufferRing(group uint16) error {
	r := bufReg{group: group}
	return us.IOURingRegister(q.fd, unregisterPbufRing, unsafe.Pointer(&r), 1)
}

// bufEntriesOf views mem as n entries of a buffer ring, and the word that holds its tail.
func bufEntriesOf(mem []byte, n uint32) ([]bufEntry, *uint32) {
	e := unsafe.Slice((*bufEntry)(unsafe.Pointer(&mem[0])), n)
	return e, (*uint32)(unsafe.Pointer(&e[0].id))
}
