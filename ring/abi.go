package ring

// What the kernel's io_uring interface has beyond the constants of the iouring-go/syscall package, under the kernel's names.
const (
	setupSubmitAll    = 1 << 7  // IORING_SETUP_SUBMIT_ALL
	setupTaskrunFlag  = 1 << 9  // IORING_SETUP_TASKRUN_FLAG
	setupSingleIssuer = 1 << 12 // IORING_SETUP_SINGLE_ISSUER
	setupDeferTaskrun = 1 << 13 // IORING_SETUP_DEFER_TASKRUN

	featuresNeeded = 1<<0 | // IORING_FEAT_SINGLE_MMAP
		1<<1 | // IORING_FEAT_NODROP: the kernel keeps completions that the queue has no room for
		1<<2 | // IORING_FEAT_SUBMIT_STABLE: what a submission points to besides buffers is copied when it is consumed
		1<<5 | // IORING_FEAT_FAST_POLL
		1<<11 // IORING_FEAT_CQE_SKIP

	enterGetEvents      = 1 << 0 // IORING_ENTER_GETEVENTS
	enterRegisteredRing = 1 << 4 // IORING_ENTER_REGISTERED_RING

	sqOverflow = 1 << 1 // IORING_SQ_CQ_OVERFLOW
	sqTaskrun  = 1 << 2 // IORING_SQ_TASKRUN

	sqeBufferSelect = 1 << 5 // IOSQE_BUFFER_SELECT
	sqeSkipSuccess  = 1 << 6 // IOSQE_CQE_SKIP_SUCCESS

	recvMultishot = 1 << 1 // IORING_RECV_MULTISHOT

	cancelAll = 1 << 0 // IORING_ASYNC_CANCEL_ALL
	cancelAny = 1 << 2 // IORING_ASYNC_CANCEL_ANY

	cqeBuffer      = 1 << 0 // IORING_CQE_F_BUFFER
	cqeMore        = 1 << 1 // IORING_CQE_F_MORE
	cqeBufferShift = 16     // IORING_CQE_BUFFER_SHIFT

	registerFiles2        = 13 // IORING_REGISTER_FILES2
	registerBuffers2      = 15 // IORING_REGISTER_BUFFERS2
	registerBuffersUpdate = 16 // IORING_REGISTER_BUFFERS_UPDATE
	registerRingFDs       = 20 // IORING_REGISTER_RING_FDS
	unregisterRingFDs     = 21 // IORING_UNREGISTER_RING_FDS
	registerPbufRing      = 22 // IORING_REGISTER_PBUF_RING
	unregisterPbufRing    = 23 // IORING_UNREGISTER_PBUF_RING

	rsrcRegisterSparse = 1 << 0 // IORING_RSRC_REGISTER_SPARSE

	fixedBuffersMax = 1 << 14 // IORING_MAX_REG_BUFFERS
	queueEntriesMax = 1 << 16 // IORING_MAX_CQ_ENTRIES
)

// cqe is struct io_uring_cqe.
type cqe struct {
	user  uint64
	res   int32
	flags uint32
}

// bufReg is struct io_uring_buf_reg.
type bufReg struct {
	addr    uint64
	entries uint32
	group   uint16
	flags   uint16
	_       [3]uint64
}

// bufEntry is struct io_uring_buf. In the first entry of a ring the last field is the ring's tail.
type bufEntry struct {
	addr uint64
	size uint32
	id   uint16
	tail uint16
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	count uint32
	flags uint32
	_     uint64
	data  uint64
	tags  uint64
}

// rsrcUpdate is struct io_uring_rsrc_update, the form for files and rings.
type rsrcUpdate struct {
	offset uint32
	_      uint32
	data   uint64
}

// rsrcUpdate2 is struct io_uring_rsrc_update2, the form for buffers.
type rsrcUpdate2 struct {
	offset uint32
	_      uint32
	data   uint64
	tags   uint64
	count  uint32
	_      uint32
}
