package server

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/pages"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/l2/segwatch"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

const (
	// filesReserved is how many descriptors the server needs beside connections and
	// segments: about 20 and those of HTTP.
	filesReserved = 40
	// filesPerConn is what a connection needs: its socket.
	filesPerConn = 1
	// opsPerConn is what it takes of the ring: a receive and a send.
	opsPerConn = 2
	// filesPerInstance is what an instance needs, as long as its process lives: the pidfd.
	filesPerInstance = 1
	// connsMin is with how many connections and instances the server starts at least.
	connsMin = 4
	// segmentTypical is the size of the disk tier's segments where their number matters.
	segmentTypical = 256 << 20
	segmentsMin    = 36
	// diskOps is how many I/Os of the log may be under way.
	diskOps = 512
	// diskIOSize is the length in bytes of the longest I/O on a value. A value alone is read by
	// several at once, which takes the disk to its rate; shorter ones cost more processor time.
	diskIOSize = 1 << 20
	// diskInFlight is how many bytes are read and written at once. It is enough for the disk's rate; with more a load
	// waits the longer behind what the disk was given before.
	diskInFlight = 8 << 20
	// epollProcs is how many goroutines may run at a time at least, where system calls read and write files.
	epollProcs = 4
)

// A closer undoes what was opened, last first.
type closer struct{ steps []closeStep }

type closeStep struct {
	what  string
	do    func() error
	stuck func() error // instead, when the disk does not let go of what it works on; nil: nothing
}

// add has a step done at the end. It is left to the end of the process if the disk hangs.
func (c *closer) add(what string, do func() error) {
	c.steps = append(c.steps, closeStep{what: what, do: do})
}

// addAlways has a step done at the end, or stuck in its stead if the disk hangs.
func (c *closer) addAlways(what string, do, stuck func() error) {
	c.steps = append(c.steps, closeStep{what, do, stuck})
}

// close runs the steps. An error is logged: nothing can be done about it any more.
func (c *closer) close(log *slog.Logger, stuck bool) {
	for _, step := range slices.Backward(c.steps) {
		do := step.do
		if stuck {
			do = step.stuck
		}
		if do == nil {
			continue
		}
		if err := do(); err != nil {
			log.Warn("stop: "+step.what, "err", err)
		}
	}
	c.steps = nil
}

// open opens everything a server has. The closer knows what was opened when it fails.
// Nothing of the pool or the arena may be unmapped before the ring is closed, which waits
// for the I/O that is under way, and the helpers have ended: so these are opened later.
func (s *Server) open() error {
	conns, instances, err := fileLimits(&s.cfg)
	if err != nil {
		return err
	}
	s.cfg.Limits.Instances = instances
	s.r = newReactor(&s.cfg, conns)
	for _, step := range []func() error{s.openAccess, s.openListeners, s.openHTTP, s.openPool, s.openDisk, s.openRing, s.openEngine, s.endHTTP} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fileLimits is how many connections and instances there may be, given the descriptors: who
// is let in must not take those that the disk tier and new connections need.
func fileLimits(cfg *Config) (conns, instances int, err error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, 0, fmt.Errorf("server: read the limit on open files: %w", err)
	}
	reserved := filesReserved
	if cfg.L2Dir != "" {
		reserved += segmentsMin + int(cfg.L2Size/segmentTypical)
	}
	const each = filesPerConn + filesPerInstance
	room := int(min(files.Cur, 1<<30)) - reserved
	if room < connsMin*each {
		hint := ""
		if cfg.L2Dir != "" && cfg.L2Size > segmentTypical {
			hint = fmt.Sprintf(", or give less than %d MiB of disk (--l2-size): every %d MiB take a file", cfg.L2Size>>20, segmentTypical>>20)
		}
		return 0, 0, fmt.Errorf("server: %d open files are allowed, and it needs %d: raise the limit (ulimit -n)%s", files.Cur, reserved+connsMin*each, hint)
	}
	conns, instances = shareFiles(room, cfg.Limits.Conns, cfg.Limits.Instances)
	if conns < cfg.Limits.Conns || instances < cfg.Limits.Instances {
		cfg.Logger.Warn("fewer connections than meant: raise the limit on open files (ulimit -n)",
			"connections", conns, "instances", instances, "meant", cfg.Limits.Conns, "files", files.Cur)
	}
	return conns, instances, nil
}

// shareFiles divides room descriptors among so many connections and instances at most.
func shareFiles(room, conns, instances int) (int, int) {
	instances = min(instances, max(room/(filesPerConn+filesPerInstance), (room-filesPerConn*conns)/filesPerInstance))
	return min(conns, (room-filesPerInstance*instances)/filesPerConn), instances
}

// newReactor makes a loop without anything open.
func newReactor(cfg *Config, conns int) *reactor {
	r := &reactor{
		log:         cfg.Logger,
		limiter:     cfg.limiter,
		completions: make([]ring.Completion, 0, turnCompletions),
		events:      make([]engine.Event, 0, 2*turnCompletions),
		deferred:    make([]engine.Event, 0, diskOps),
		conns:       make([]conn, conns),
		connsFree:   make([]uint32, conns),
		touched:     make([]uint32, 0, conns),
		resumed:     make([]uint32, 0, conns),
		resumedNext: make([]uint32, 0, conns),
		tried:       make([]uint32, 0, conns),
		leaving:     make([]uint32, 0, conns),
		segments:    make([]segment, 1, 2*conns),
		disk:        make([]diskOp, diskOps),
		diskFree:    make([]uint32, diskOps),
		readyAt:     min(cfg.L1Size, readyMax),
		ready:       make(chan struct{}),
		scrape:      scrape{filled: make(chan struct{}, 1)},
	}
	r.waits.limits = [waitKinds]time.Duration{waitHello: cfg.Limits.HelloTime, waitFrame: cfg.Limits.FrameTime, waitReader: cfg.Limits.ReaderTime}
	for i := range r.conns {
		r.conns[i].id = engine.NewConnID(uint32(i), 0)
		r.connsFree[i] = uint32(conns - 1 - i) // the first is given out first
	}
	for i := range r.diskFree {
		r.diskFree[i] = uint32(i)
	}
	r.watches.processes = make([]process, 1, cfg.Limits.Instances+2)
	r.watches.list = make([]watch, 1, cfg.Limits.Instances)
	r.watches.byInstance = make([]uint32, cfg.Limits.Instances)
	return r
}

func (s *Server) openListeners() error {
	for _, addr := range s.cfg.Listen {
		l, err := openListener(addr, &s.cfg.Access)
		if err != nil {
			return err
		}
		s.r.listeners = append(s.r.listeners, l)
		s.addrs = append(s.addrs, l.addr)
		i := len(s.r.listeners) - 1
		release := func() error {
			if l := &s.r.listeners[i]; l.state != listenClosed {
				l.release()
			}
			return nil
		}
		s.closer.addAlways("close "+l.addr, release, release)
	}
	return nil
}

func (s *Server) openPool() error {
	cfg := l1.Config{
		Size: s.cfg.L1Size, Mode: l1.ModeMemfd, Group: -1, Logger: s.cfg.Logger,
		HugePages: s.cfg.HugePages, Placement: s.cfg.Placement,
	}
	if s.cfg.ShmName != nil && *s.cfg.ShmName != "" {
		cfg.Mode, cfg.Name, cfg.FileMode, cfg.Dir = l1.ModeNamed, *s.cfg.ShmName, s.cfg.ShmMode, s.cfg.ShmDir
		if s.cfg.ShmGroup != nil {
			cfg.Group = int(*s.cfg.ShmGroup)
		}
	}
	pool, err := l1.Open(cfg)
	if err != nil {
		return fmt.Errorf("server: open a pool of %d bytes: %w%s", s.cfg.L1Size, err, poolHint(err))
	}
	s.closer.addAlways("close the pool", pool.Close, pool.Abandon)
	s.r.pool = pool
	only, err := pool.ReadOnlyFd()
	if err != nil {
		return fmt.Errorf("server: open the pool for readers: %w", err)
	}
	s.closer.add("close the pool's read-only descriptor", func() error { return unix.Close(only) })
	s.r.poolFds = [2]int{engine.PoolReadWrite: pool.Fd(), engine.PoolReadOnly: only}
	return nil
}

// poolHint says what to do about a pool that cannot be had.
func poolHint(err error) string {
	var full l1.ErrNoSpace
	switch {
	case errors.Is(err, l1.ErrInUse), errors.Is(err, l1.ErrRefused):
		return ": give another name"
	case errors.As(err, &full):
		return ": give it less, or free some of that file system (a worker that lives may have a dead server's pool mapped)"
	case errors.Is(err, unix.EFBIG):
		return ": give it less, or raise the limit on the size of files (ulimit -f)"
	case errors.Is(err, unix.ENOMEM):
		return ": give it less, or free some memory; a limit on addresses (ulimit -v) must have room for it, too"
	}
	return ""
}

// shared names how the pool is shared.
func (s *Server) shared() string {
	switch s.poolInfo().Kind {
	case proto.ShmFd:
		return "by descriptor"
	case proto.ShmNamed:
		return "as " + s.r.pool.Name()
	case proto.ShmNone:
	}
	return "no"
}

// poolInfo is what the engine has to know of the pool.
func (s *Server) poolInfo() engine.PoolInfo {
	info := engine.PoolInfo{Size: s.r.pool.Size()}
	info.Dev, info.Inode = s.r.pool.Stat()
	switch {
	case s.cfg.ShmName == nil:
		info.Kind = proto.ShmFd
	case *s.cfg.ShmName == "":
		info.Kind = proto.ShmNone
	default:
		info.Kind, info.Name = proto.ShmNamed, s.r.pool.Name()
	}
	return info
}

func (s *Server) openDisk() error {
	if s.cfg.L2Dir == "" {
		return nil
	}
	dir, err := segdir.Open(s.cfg.L2Dir, segdir.Options{Logger: s.cfg.Logger})
	switch {
	case errors.Is(err, segdir.ErrLocked), errors.Is(err, segdir.ErrForeign):
		return fmt.Errorf("server: open the disk tier in %s: %w: give another directory", s.cfg.L2Dir, err)
	case err != nil:
		return fmt.Errorf("server: open the disk tier in %s: %w", s.cfg.L2Dir, err)
	}
	s.closer.add("close the disk tier", dir.Close)
	arena, err := unix.Mmap(-1, 0, seglog.ArenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("server: map %d bytes for the disk tier: %w: free some memory", seglog.ArenaSize, err)
	}
	s.closer.add("unmap the disk tier's memory", func() error { return unix.Munmap(arena) })
	s.r.dir, s.r.arena = dir, arena
	return nil
}

func (s *Server) openRing() error {
	beside := 2*s.cfg.Limits.Instances + len(s.r.listeners) + 64
	o, err := ring.Open(s.cfg.Engine, ring.Config{
		Ops:     diskOps,
		Control: opsPerConn*len(s.r.conns) + beside,
		Spin:    s.cfg.Spin,
		Look:    s.cfg.Look,
	})
	switch {
	case errors.Is(err, ring.ErrTooMany):
		return fmt.Errorf("server: open an io_uring for %d connections: %w: give %d at most (--connections), or --io-engine epoll",
			len(s.r.conns), err, (ring.ControlMax(diskOps)-beside)/opsPerConn)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("server: open an io_uring: %w: raise the limit on locked memory (ulimit -l) to 1 MiB at least, or free some memory", err)
	case errors.Is(err, ring.ErrUnavailable):
		return fmt.Errorf("server: io_uring is missing: %w: "+
			"set the sysctl kernel.io_uring_disabled to 0, in a container allow the io_uring system calls (seccomp), use Linux 6.1 or later, "+
			"or give --io-engine auto or epoll", err)
	case err != nil:
		return fmt.Errorf("server: open the I/O engine: %w", err)
	case o.Refusal != nil:
		s.cfg.Logger.Warn("no io_uring: I/O goes through epoll, which costs some speed"+refusalHint(o.Refusal), "err", o.Refusal)
	}
	if o.Engine == ring.EngineEpoll {
		moreProcessors()
	}
	s.r.ring, s.r.engine = o.Ring, o.Engine
	s.closer.addAlways("close the connections", s.r.closeConns, s.r.shutConns)
	s.closer.add("close the ring", o.Ring.Close)
	return nil
}

// refusalHint says what to do about a kernel that refuses io_uring.
func refusalHint(err error) string {
	if errors.Is(err, unix.ENOMEM) {
		return "; if the limit on locked memory (ulimit -l) is the reason, raise it to 1 MiB at least"
	}
	return ""
}

// moreProcessors gives the goroutines that read and write files places to run: a system call that takes long keeps its own
// until the runtime's monitor has noticed.
func moreProcessors() {
	if runtime.GOMAXPROCS(0) < epollProcs {
		runtime.GOMAXPROCS(epollProcs)
	}
}

func (s *Server) openEngine() error {
	boot, err := random()
	if err != nil {
		return err
	}
	seed, err := random()
	if err != nil {
		return err
	}
	log, err := s.recoverLog(seed)
	if err != nil {
		return err
	}
	l := &s.cfg.Limits
	core, err := engine.New(engine.Config{
		Pool: s.poolInfo(), IOEngine: s.r.engine.String(), Boot: boot, Server: s.cfg.Version, Access: s.r.access,
		Disk: log, Write: s.cfg.Write, Admit: s.cfg.Admit, Policy: s.cfg.Policy,
		Conns: len(s.r.conns), Instances: l.Instances, Transfers: l.Transfers, Entries: l.Entries,
		Objects: l.Objects, Parked: l.Parked, Ops: l.Ops,
		InstanceCap: l.InstanceCap, TransferTime: l.TransferTime, LeaseTime: l.LeaseTime, ReapAfter: s.cfg.ReapAfter, Seed: seed,
		PinBudget: l.PinBudget, PinTime: l.PinTime,
		Advise: pages.Advise,
	}, s.r)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	s.r.core = core
	s.r.helpers.ring, s.r.helpers.log, s.r.helpers.patience = s.r.ring, s.cfg.Logger, roomTime
	if s.r.dir != nil {
		s.r.helpers.dir = s.r.dir
	}
	s.closer.add("end the helpers", func() error { s.r.helpers.stop(); return nil })
	if s.cfg.Admit == engine.AdmitTinyLFU && log != nil {
		if s.r.sighter, err = newSighter(s.r.ring.Wake); err != nil {
			return err
		}
		end := func() error { s.r.sighter.stop(); return nil }
		s.closer.addAlways("end the sketch of admission", end, end)
	}
	return nil
}

// manyRecords is from how many records on it is worth some milliseconds to give back what recovery used: 75 bytes for each.
const manyRecords = 100_000

// progressEvery is the time between two lines of a recovery that takes long.
const progressEvery = time.Second

// recovering returns what says how far a recovery has come, and logs it every so often. The web may be nil.
func recovering(w *web, log *slog.Logger, every time.Duration) func(done, files, records int) {
	last := time.Now()
	return func(done, files, records int) {
		if w != nil {
			w.startsWith(fmt.Sprintf("%d %% of the disk tier is read (%d of %d segments)", 100*done/files, done, files))
		}
		if now := time.Now(); done < files && now.Sub(last) >= every {
			last = now
			log.Info("disk tier: reading what is there", "segments", done, "of", files, "records", records)
		}
	}
}

// recoverLog reads what the disk tier holds.
func (s *Server) recoverLog(seed uint64) (*seglog.Log, error) {
	if s.r.dir == nil {
		return nil, nil
	}
	log, report, err := seglog.Recover(seglog.Config{
		Size: segdir.Usable(s.cfg.L2Size), Arena: s.r.arena, Seed: seed, MaxEntries: s.cfg.L2Records, WriteLimit: s.cfg.L2WriteLimit, StallTime: s.cfg.L2StallTime,
		IOSize: diskIOSize, MaxInFlightBytes: diskInFlight, Progress: recovering(s.web, s.cfg.Logger, progressEvery),
		Nonce: func() (nonce [16]byte) {
			_, _ = rand.Read(nonce[:]) // never fails
			return nonce
		},
	}, s.r.dir)
	if err != nil {
		return nil, fmt.Errorf("server: recover the disk tier in %s: %w", s.cfg.L2Dir, err)
	}
	s.cfg.Logger.Info("disk tier recovered", "dir", s.cfg.L2Dir, "segments", report.Segments, "records", report.Records)
	if free, err := s.r.dir.FreeSpace(); err == nil {
		log.SetFree(free)
	}
	s.r.tier = log
	s.r.diskWatch = segwatch.New(log, s.cfg.Logger)
	// Recovery leaves as much behind as it keeps, and the collector has no reason to look for it before much else has been used.
	if report.Records > manyRecords {
		debug.FreeOSMemory()
	}
	for _, what := range report.Ignored {
		s.cfg.Logger.Warn("disk tier: ignored: " + what)
	}
	return log, nil
}

// openHTTP serves, so that who asks is told how far the start is.
func (s *Server) openHTTP() error {
	if s.cfg.HTTP == "" {
		return nil
	}
	l, err := openWeb(s.cfg.HTTP)
	if err != nil {
		return err
	}
	s.http = l
	s.web = newWeb(&s.r.scrape, s.cfg.Logger)
	s.web.start(l)
	return s.endHTTP()
}

// endHTTP has serving end: as the first of all, for it wakes the ring, and if the start fails
// before that is open.
func (s *Server) endHTTP() error {
	if s.web != nil {
		stop := func() error { s.web.stop(); return nil }
		s.closer.addAlways("stop serving metrics", stop, stop)
	}
	return nil
}

// closeConns closes what is still open of the connections, when the ring is closed, and
// gives their memory back.
func (r *reactor) closeConns() error {
	for i := range r.conns {
		if c := &r.conns[i]; c.state != connFree {
			closeFd(c.fd)
		}
	}
	for _, p := range r.watches.processes {
		if p.refs > 0 {
			closeFd(p.fd)
		}
	}
	r.buffers.close()
	return nil
}

// shutConns ends what is still open of the connections while the ring lives on: the peers are to know even if this
// process cannot end yet.
func (r *reactor) shutConns() error {
	for i := range r.conns {
		if c := &r.conns[i]; c.state != connFree {
			_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // or it is ended already
		}
	}
	return nil
}

// random returns a random number that is not 0.
func random() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("server: read random bytes: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}
