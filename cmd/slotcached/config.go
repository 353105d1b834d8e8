package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server"
	"github.com/slotcache/slotcache/server/engine"
)

// The pool's size when none is given: a quarter of the free memory, within these.
const (
	l1SizeMin = 16 << 20
	l1SizeMax = 4 << 30
)

// reapLeast is the least time of silence after which a worker is hardly a healthy one: two PINGs
// that it has not sent.
const reapLeast = 45 * time.Second

// What the loop may look for work for before it sleeps. A look finds what comes within some hundred
// microseconds or wastes a processor, as spinning does on purpose.
const (
	lookMax = 10 * time.Millisecond
	spinMax = time.Second
)

// l2LimitMin is the least that may be written to disk in a second. With less the first large
// chunk would wait for longer than any client does.
const l2LimitMin = 1 << 20

// What an I/O of the disk may take. Less is what healthy disks take now and then.
const (
	l2StallMin = 100 * time.Millisecond
	l2StallMax = time.Hour
)

// A logLevel is the least level that is logged.
type logLevel slog.Level

// UnmarshalText reads a level from the command line.
func (l *logLevel) UnmarshalText(text []byte) error {
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return fmt.Errorf("%q is no level: give debug, info, warn or error", text)
	}
	return nil
}

// defaultHTTP is where metrics are served unless --http says otherwise.
const defaultHTTP = "127.0.0.1:9469"

// command is the command line. A nil pointer or an empty string is what was not given.
type command struct {
	Listen   []string      `help:"Address to listen on, unix:PATH or tcp:HOST:PORT; may be repeated. Default: unix:${socket}" placeholder:"ADDR" sep:"none"`
	L1Size   *flags.Size   `name:"l1-size" help:"Size of the memory pool. Default: a quarter of the free memory, at most 4GiB." placeholder:"SIZE"`
	L1Policy string        `name:"l1-policy" help:"Which objects leave memory first: adaptive (by what would have served the requests of late best), lru (those not used for the longest time), s3fifo (those that did not prove themselves in a small queue)." enum:"adaptive,lru,s3fifo" default:"adaptive"`
	Pinned   *flags.Size   `name:"pin-budget" help:"Most bytes of the pool that clients may pin; 0 for none. Default: a quarter of the pool." placeholder:"SIZE"`
	PinTime  time.Duration `name:"pin-time" help:"Longest time that something stays pinned." default:"1h"`
	L2Dir    *string       `name:"l2-dir" help:"Directory of the disk store; an empty one for none. Default: $$XDG_CACHE_HOME/slotcache or ~/.cache/slotcache." placeholder:"DIR"`
	L2Size   *flags.Size   `name:"l2-size" help:"Most bytes the disk store takes. Default: a tenth of the free space, at most 16GiB." placeholder:"SIZE"`
	L2Write  string        `name:"l2-write" help:"When objects go to disk: through (soon after commit), back (when memory runs short), off (never)." enum:"through,back,off" default:"through"`
	L2Recs   *int          `name:"l2-records" help:"Most values in the disk store, whatever their size; each takes 72 bytes of memory. Default: one for each 64KiB of --l2-size." placeholder:"N"`
	L2Limit  *flags.Size   `name:"l2-write-limit" help:"Most bytes written to the disk store in a second. Reads do not count, deletes do not wait. Default: no limit." placeholder:"SIZE"`
	L2Stall  time.Duration `name:"l2-stall-time" help:"How long an I/O of the disk store may take until the disk counts as one that hangs; memory then goes on without it." default:"5s"`
	L2Admit  string        `name:"l2-admit" help:"Which objects go to disk at all: all, seen-twice (those stored or used a second time), tinylfu (the same, as far as a frequency sketch remembers them)." enum:"all,seen-twice,tinylfu" default:"all"`
	ShmName  *string       `name:"shm-name" help:"Name of the pool in /dev/shm; an empty one for no shared memory. Default: a nameless pool whose descriptor is passed." placeholder:"NAME"`
	ShmMode  *string       `name:"shm-mode" help:"Mode of a named pool. Default: 0600." placeholder:"MODE"`
	ShmGroup string        `name:"shm-group" help:"Group of a named pool, by name or number. Its members may use the pool, unless --shm-mode says otherwise." placeholder:"GROUP"`
	ShmDir   string        `name:"shm-dir" help:"Directory of a named pool, a tmpfs or hugetlbfs, which clients must be told of. Default: /dev/shm." placeholder:"DIR"`
	Huge     string        `name:"hugepages" help:"Huge pages for the pool: auto (transparent ones where the kernel makes them), off, try (also those that were set aside; else as auto, and the log says why) or on (else it does not start). Without a name, try and on take pages of 2MiB that vm.nr_hugepages has set aside, with one those of --shm-dir." enum:"auto,off,try,on" default:"auto"`
	NUMA     string        `name:"numa" help:"Where the pool lies on a machine of several NUMA nodes: interleave (over all) or bind:N (on node N). Default: as the kernel has it." placeholder:"WHERE"`
	HTTP     *string       `name:"http" help:"Address of /metrics, /healthz and /readyz; an empty one for none. Default: ${http}, or none where that is taken." placeholder:"HOST:PORT"`
	IOEngine string        `name:"io-engine" help:"What carries out the I/O: uring (io_uring, from Linux 6.1), epoll (with system calls for the disk; some slower), auto (uring where the kernel allows it, else epoll)." enum:"auto,uring,epoll" default:"auto" env:"SLOTCACHE_IO_ENGINE"`
	Access   accessFlags   `embed:""`
	Conns    int           `name:"connections" help:"Most connections at a time; each takes one of the open files that the system allows. With io_uring 14,700 are the most." default:"1024"`
	Reap     time.Duration `name:"reap-after" help:"How long a worker may send nothing until it is not registered any more; 0: without end." default:"120s"`
	Spin     time.Duration `help:"How long the loop looks for work before it sleeps." default:"0s"`
	Look     time.Duration `help:"How long it does so when requests come of several clients at a time, or a worker stores or retrieves, as long as it mostly finds some; with io_uring." default:"50us"`
	LogLevel logLevel      `name:"log-level" help:"Least level that is logged: debug, info, warn or error." default:"info"`

	// Collect is for slotbench gc: what do collections do to clients that come one after the other?
	Collect bool `name:"collect-always" hidden:""`

	Version versionFlag `help:"Print the version and end."`
}

// config turns the command line into the server's configuration. Errors of usage and of
// the environment tell themselves apart by their exit codes.
func (c *command) config(log *slog.Logger) (server.Config, error) {
	cfg := server.Config{
		Listen:  c.Listen,
		ShmName: c.ShmName,
		ShmDir:  c.ShmDir,
		Spin:    c.Spin,
		Look:    c.Look,

		ReapAfter: c.Reap,

		Logger:  log,
		Version: flags.Version(),

		Limits: server.Limits{Conns: c.Conns},

		FreeMemory: func() (int64, error) { return freeMemory("/") },
	}
	if c.Reap < 0 {
		return cfg, flags.Usagef("--reap-after: %v is less than nothing; 0 is never", c.Reap)
	}
	if c.Reap > 0 && c.Reap < reapLeast {
		log.Warn("clients send a PING every 20 seconds when they have nothing else to do: healthy ones will be taken for silent; give more, or 0", "reap-after", c.Reap)
	}
	if c.Spin < 0 || c.Spin > spinMax {
		return cfg, flags.Usagef("--spin: %v is not between 0, for none, and %v", c.Spin, spinMax)
	}
	if c.Look < 0 || c.Look > lookMax {
		return cfg, flags.Usagef("--look: %v is not between 0, for none, and %v", c.Look, lookMax)
	}
	if c.Conns < 1 || c.Conns > server.ConnsMax {
		return cfg, flags.Usagef("--connections: %d is not between 1 and %d", c.Conns, server.ConnsMax)
	}
	var err error
	if cfg.HugePages, err = l1.ParseHugePages(c.Huge); err != nil {
		return cfg, flags.Usagef("--hugepages: %w", err)
	}
	if cfg.Placement, err = l1.ParsePlacement(c.NUMA); err != nil {
		return cfg, flags.Usagef("--numa: %w", err)
	}
	if cfg.Policy, err = table.ParsePolicy(c.L1Policy); err != nil {
		return cfg, flags.Usagef("--l1-policy: %w", err)
	}
	if cfg.Engine, err = ring.ParseEngine(c.IOEngine); err != nil {
		return cfg, flags.Usagef("--io-engine: %w", err)
	}
	if cfg.Admit, err = engine.ParseAdmitMode(c.L2Admit); err != nil {
		return cfg, flags.Usagef("--l2-admit: %w", err)
	}
	switch c.L2Write {
	case "back":
		cfg.Write = engine.WriteBack
	case "off":
		cfg.Write = engine.WriteOff
	default:
		cfg.Write = engine.WriteThrough
	}
	for _, step := range []func(*server.Config, *slog.Logger) error{c.Access.admit, c.listen, c.share, c.memory, c.pins, c.disk, c.metrics} {
		if err := step(&cfg, log); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

func (c *command) listen(cfg *server.Config, _ *slog.Logger) error {
	for i, addr := range cfg.Listen {
		if err := flags.CheckAddr(addr); err != nil {
			return flags.Usagef("--listen: %w", err)
		}
		// Every port 0 is another one.
		if slices.Contains(cfg.Listen[:i], addr) && !strings.HasSuffix(addr, ":0") {
			return flags.Usagef("--listen: %s is given twice", addr)
		}
	}
	if len(cfg.Listen) > 0 {
		return nil
	}
	path := flags.DefaultSocket()
	if err := flags.CheckAddr("unix:" + path); err != nil {
		return flags.Usagef("the default socket: %w", err)
	}
	if err := flags.MakePrivate(filepath.Dir(path)); err != nil {
		return err
	}
	cfg.Listen = []string{"unix:" + path}
	return nil
}

// parseMode reads the mode of a file.
func parseMode(flag, text string) (os.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	switch {
	case err != nil || mode > 0o777:
		return 0, flags.Usagef("%s: %q is not an octal mode, as in 0660", flag, text)
	case mode == 0:
		return 0, flags.Usagef("%s: nobody could open what has mode 0", flag)
	}
	return os.FileMode(mode), nil
}

// checkMemory refuses a directory that is not in memory.
func checkMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("--shm-dir %s: %w", dir, err)
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC {
		return flags.Usagef("--shm-dir %s: neither a tmpfs nor a hugetlbfs: the pool would be on a disk", dir)
	}
	return nil
}

// share is how the pool is shared.
func (c *command) share(cfg *server.Config, _ *slog.Logger) error {
	named := c.ShmName != nil && *c.ShmName != ""
	if named {
		if _, err := l1.NormalizeName(*c.ShmName); err != nil {
			return flags.Usagef("--shm-name: %w", err)
		}
	}
	if c.ShmDir != "" {
		if !named {
			return flags.Usagef("--shm-dir: only a named pool is in a directory; give --shm-name")
		}
		if err := checkMemory(c.ShmDir); err != nil {
			return err
		}
	}
	if c.ShmGroup != "" {
		id, err := groupID(c.ShmGroup)
		if err == nil && !named {
			err = errors.New("only a named pool has a group; give --shm-name")
		}
		if err != nil {
			return flags.Usagef("--shm-group: %w", err)
		}
		cfg.ShmGroup, cfg.ShmMode = &id, 0o660
	}
	if c.ShmMode == nil {
		return nil
	}
	mode, err := parseMode("--shm-mode", *c.ShmMode)
	if err == nil && !named {
		err = flags.Usagef("--shm-mode: only a named pool has a mode; give --shm-name")
	}
	cfg.ShmMode = mode
	return err
}

func (c *command) memory(cfg *server.Config, log *slog.Logger) error {
	free, err := freeMemory("/")
	if c.L1Size != nil {
		size := *c.L1Size
		if size < server.L1SizeMin {
			return flags.Usagef("--l1-size: %v is less than %v; for the default leave it out", size, flags.Size(server.L1SizeMin))
		}
		cfg.L1Size = int64(size)
		// Huge pages that were set aside are no part of what is free, nor of what a group's
		// limit on memory is about.
		if (cfg.HugePages == l1.HugeTry || cfg.HugePages == l1.HugeOn) && (c.ShmName == nil || *c.ShmName == "") {
			return nil
		}
		// Without this the kernel would end this process or another, when the pool's pages
		// are reserved. What is free now may be less: workers have a dead server's pool
		// mapped until they have found this one.
		if total, ok := totalMemory("/"); ok && int64(size) > total {
			return fmt.Errorf("--l1-size: %v is more than the %v of memory there is; give less", size, flags.Size(total))
		}
		if err == nil && int64(size) > free {
			log.Warn("the pool is larger than the free memory: if none gets free soon, give --l1-size less", "size", size, "free", flags.Size(free))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; give --l1-size", err)
	}
	size := min(free/4, l1SizeMax) &^ (1<<20 - 1)
	if size < l1SizeMin {
		return fmt.Errorf("a quarter of the %v of free memory is less than %v; free some or give --l1-size", flags.Size(free), flags.Size(l1SizeMin))
	}
	cfg.L1Size = size
	return nil
}

// pins is how much of the pool may be pinned, and for how long.
func (c *command) pins(cfg *server.Config, _ *slog.Logger) error {
	if c.PinTime < time.Millisecond || c.PinTime > engine.PinTimeMax {
		return flags.Usagef("--pin-time: %v: give 1ms to %v; to have nothing pinned give --pin-budget 0", c.PinTime, engine.PinTimeMax)
	}
	cfg.Limits.PinTime = c.PinTime
	if c.Pinned == nil {
		return nil
	}
	if int64(*c.Pinned) > cfg.L1Size {
		return flags.Usagef("--pin-budget: %v is more than the pool of %v", *c.Pinned, flags.Size(cfg.L1Size))
	}
	cfg.Limits.PinBudget = int64(*c.Pinned)
	if *c.Pinned == 0 {
		cfg.Limits.PinBudget = -1
	}
	return nil
}

func (c *command) disk(cfg *server.Config, log *slog.Logger) error {
	if c.L2Size != nil && *c.L2Size == 0 {
		return flags.Usagef("--l2-size: a store of 0 bytes; for no disk store give --l2-dir ''")
	}
	if c.L2Size != nil && *c.L2Size < server.L2SizeMin {
		return flags.Usagef("--l2-size: %v is less than %v", *c.L2Size, flags.Size(server.L2SizeMin))
	}
	if c.L2Stall < l2StallMin || c.L2Stall > l2StallMax {
		return flags.Usagef("--l2-stall-time: %v is not between %v and %v", c.L2Stall, l2StallMin, l2StallMax)
	}
	cfg.L2StallTime = c.L2Stall
	if c.L2Recs != nil && (*c.L2Recs < 1 || *c.L2Recs > server.L2RecordsMax) {
		return flags.Usagef("--l2-records: %d is not between 1 and %d; for the default leave it out", *c.L2Recs, server.L2RecordsMax)
	}
	if c.L2Recs != nil {
		cfg.L2Records = *c.L2Recs
	}
	if c.L2Limit != nil {
		if *c.L2Limit == 0 {
			return flags.Usagef("--l2-write-limit: nothing could be written; for no limit leave it out, to write nothing give --l2-write off")
		}
		if *c.L2Limit < l2LimitMin {
			return flags.Usagef("--l2-write-limit: %v a second is less than %v; for no limit leave it out, to write nothing give --l2-write off", *c.L2Limit, flags.Size(l2LimitMin))
		}
		cfg.L2WriteLimit = int64(*c.L2Limit)
	}
	if c.L2Dir != nil && *c.L2Dir == "" {
		switch {
		case c.L2Size != nil:
			return flags.Usagef("--l2-size is given, but --l2-dir '' turns the disk store off")
		case c.L2Limit != nil:
			return flags.Usagef("--l2-write-limit is given, but --l2-dir '' turns the disk store off")
		case c.L2Recs != nil:
			return flags.Usagef("--l2-records is given, but --l2-dir '' turns the disk store off")
		}
		return nil
	}
	dir, err := defaultL2Dir()
	if c.L2Dir != nil {
		dir, err = filepath.Abs(*c.L2Dir)
	}
	var size int64
	switch {
	case err != nil:
	case c.L2Size == nil:
		size, err = defaultL2Size(dir)
	default:
		size = int64(*c.L2Size)
		warnL2Size(dir, size, log)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dir), 0o700)
	}
	if err == nil {
		cfg.L2Dir, cfg.L2Size = dir, size
		return nil
	}
	if c.L2Dir != nil || c.L2Size != nil {
		return fmt.Errorf("disk store: %w; give --l2-dir and --l2-size", err)
	}
	log.Warn("no disk store: what memory cannot hold is dropped; give --l2-dir and --l2-size", "err", err)
	return nil
}

// metrics takes the address that was given as it is, and the default one only when
// nobody listens there: a second server on the machine has to start without a word.
func (c *command) metrics(cfg *server.Config, log *slog.Logger) error {
	if c.HTTP != nil {
		cfg.HTTP = *c.HTTP
		if cfg.HTTP == "" {
			return nil
		}
		if _, _, err := net.SplitHostPort(cfg.HTTP); err != nil {
			return flags.Usagef("--http: %w: give HOST:PORT", err)
		}
		return nil
	}
	l, err := net.Listen("tcp", defaultHTTP)
	if err != nil {
		log.Warn("no metrics: the default address cannot be had; give --http HOST:PORT", "err", err)
		return nil
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	cfg.HTTP = defaultHTTP
	return nil
}
