package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

const (
	// L1SizeMin is the smallest pool, in bytes.
	L1SizeMin = 1 << 20
	// L2SizeMin is the smallest disk tier, in bytes.
	L2SizeMin = 16 << 20
	// L2RecordsMax is the most that Config.L2Records may be.
	L2RecordsMax = 1 << 28
	// ConnsMax is the most that Limits.Conns may be.
	ConnsMax = 1 << 20
	// readyMax is how much of the pool is reserved before the server is ready, in bytes, if
	// it is larger: reserving takes seconds a gibibyte.
	readyMax = 1 << 30
)

// Config says what a server is. Listen and L1Size are required; everything else is off or
// has a default where it is zero.
type Config struct {
	Listen []string // addresses: unix:PATH or tcp:HOST:PORT
	L1Size int64    // the pool, in bytes; cut to whole pages, rounded up where huge ones are set aside

	Policy table.Policy // says which object is evicted from the pool first

	// ShmName says how the pool is shared. Nil: it has no name, and its descriptor is passed
	// to clients on Unix sockets. Empty: it is not shared, and bytes travel through the
	// socket. Else its name in /dev/shm.
	ShmName  *string
	ShmMode  os.FileMode // of a named pool; 0: 0600
	ShmGroup *uint32     // of a named pool; nil: as the directory has it
	ShmDir   string      // of a named pool, which clients must know; empty: /dev/shm

	HugePages l1.HugePages // whether the pool is of huge pages
	Placement l1.Placement // on which NUMA nodes it is

	// FreeMemory tells how many bytes this process may still take. The pool's pages are
	// reserved only while it leaves some, so that nobody is killed for them. Nil: they are
	// reserved without asking.
	FreeMemory func() (int64, error)

	L2Dir  string // directory of the disk tier; empty: none
	L2Size int64  // bytes it may take on disk
	// L2Records is how many values it holds at most, whatever their size: each takes 72 bytes of
	// memory. 0: one for each 64 KiB of L2Size, but not less than 4,096 and not more than 16 Mi.
	L2Records int
	// L2WriteLimit is the most bytes written to it in a second; 0: no limit.
	L2WriteLimit int64
	Admit        engine.AdmitMode
	// L2StallTime is how long an I/O of it may take until it counts as one that hangs; 0: 5 s.
	L2StallTime time.Duration
	Write       engine.WriteMode

	Access Access
	HTTP   string // HOST:PORT of /metrics, /healthz and /readyz, without HOST on 127.0.0.1; empty: none
	// Engine carries out the I/O. The zero one is io_uring, or epoll where the kernel refuses that.
	Engine  ring.Engine
	Spin    time.Duration // how long the loop looks for work before it sleeps
	Look    time.Duration // how long it does so for several clients, while it finds some in that time
	Version string        // told to clients
	Logger  *slog.Logger  // nil: nothing is logged

	// ReapAfter is how long an instance may send nothing until it ends; 0: without end.
	ReapAfter time.Duration

	Limits Limits

	limiter *limiter // of Logger
}

// Limits bound what clients can have the server keep. The engine's documentation says what
// each is; zero means its default.
type Limits struct {
	Conns        int
	Instances    int
	Transfers    int
	Entries      int
	Objects      int
	Parked       int
	Ops          int
	InstanceCap  int64
	TransferTime time.Duration
	LeaseTime    time.Duration
	// How long a connection waits for its first frame, for the rest of a frame, and for its
	// peer to take replies.
	HelloTime, FrameTime, ReaderTime time.Duration
	PinBudget                        int64 // negative: nothing is pinned
	PinTime                          time.Duration
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Version == "" {
		c.Version = "slotcache"
	}
	for _, d := range []struct {
		limit *time.Duration
		value time.Duration
	}{{&c.Limits.HelloTime, helloTime}, {&c.Limits.FrameTime, frameTime}, {&c.Limits.ReaderTime, readerTime}} {
		if *d.limit == 0 {
			*d.limit = d.value
		}
	}
	c.limiter = newLimiter()
	c.limiter.allow(registeredText, registrationsBurst, registrationsPause)
	c.Logger = slog.New(&limited{c.Logger.Handler(), c.limiter})
	if c.ShmMode == 0 {
		c.ShmMode = 0o600
	}
	if c.L2StallTime == 0 {
		c.L2StallTime = 5 * time.Second
	}
	if c.Limits.Conns == 0 {
		c.Limits.Conns = 1024
	}
	if c.Limits.Instances == 0 {
		c.Limits.Instances = 1024
	}
	if c.Limits.Ops == 0 {
		c.Limits.Ops = max(1<<15, 2*c.Limits.Conns)
	}
	c.L1Size &^= int64(os.Getpagesize() - 1)
	return c
}

// validate says what is wrong with a config.
func (c *Config) validate() error {
	switch {
	case len(c.Listen) == 0:
		return errors.New("server: no address to listen on: give unix:PATH or tcp:HOST:PORT")
	case c.L1Size < L1SizeMin:
		return fmt.Errorf("server: a pool of %d bytes: give it %d at least", c.L1Size, L1SizeMin)
	case c.L2Dir != "" && c.L2Size < L2SizeMin:
		return fmt.Errorf("server: %d bytes of disk in %s: give it %d at least", c.L2Size, c.L2Dir, L2SizeMin)
	case c.L2Records < 0 || c.L2Records > L2RecordsMax:
		return fmt.Errorf("server: %d values in the disk tier: give 1 to %d, or 0 for the default", c.L2Records, L2RecordsMax)
	case c.L2WriteLimit < 0:
		return fmt.Errorf("server: a limit of %d bytes a second for the disk tier: give 0 for none, or more", c.L2WriteLimit)
	case c.L2StallTime < 0:
		return fmt.Errorf("server: an I/O may take %v: give 0 for the default, or more", c.L2StallTime)
	case c.ReapAfter < 0:
		return fmt.Errorf("server: silent workers end after %v: give 0 for never, or more", c.ReapAfter)
	case c.Spin < 0 || c.Look < 0:
		return fmt.Errorf("server: a spin of %v and a look of %v: give 0, or more", c.Spin, c.Look)
	case proto.CheckName(c.Access.Token) != nil:
		return fmt.Errorf("server: a token of %d bytes: give UTF-8 without NUL, at most %d bytes", len(c.Access.Token), proto.MaxName)
	case c.Access.Token != "" && c.Access.TokenFile != "":
		return errors.New("server: a token and a file of tokens: give one of them")
	case c.Limits.Conns < 0 || c.Limits.Conns > ConnsMax:
		return fmt.Errorf("server: a limit of %d connections: give 1 to %d", c.Limits.Conns, ConnsMax)
	}
	return nil
}
