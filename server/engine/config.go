package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

// WriteMode says when objects go to disk.
type WriteMode uint8

// The write modes.
const (
	WriteThrough WriteMode = iota // soon after commit
	WriteBack                     // when memory runs short, and at stop
	WriteOff                      // never; what is on disk is still read
)

// String names the mode as the command line does.
func (m WriteMode) String() string {
	switch m {
	case WriteThrough:
		return "through"
	case WriteBack:
		return "back"
	case WriteOff:
		return "off"
	}
	return fmt.Sprintf("WriteMode(%d)", uint8(m))
}

// PoolInfo is what clients are told of the pool. Kind ShmNone means that memory cannot
// be shared and every registration is inline.
type PoolInfo struct {
	Size       int64
	Kind       proto.ShmKind
	Name       string
	Dev, Inode uint64
}

// Config sizes an engine. The tables are allocated once by New.
type Config struct {
	Pool   PoolInfo
	Boot   uint64 // random, not 0, one for each start
	Server string // version text told at HELLO

	Access *access.List // who may come in and what for; nil: everybody, for everything

	IOEngine string // what the host does its I/O with, a word that STATS tells; empty: nothing is told

	Disk  *seglog.Log // nil: no disk tier
	Write WriteMode
	Admit AdmitMode

	Policy table.Policy // of eviction from memory

	Conns     int // open connections; the server never opens more
	Instances int // registered instances, draining ones included
	Transfers int // open transfers and leases
	Entries   int // keys in all open transfers and leases
	Objects   int // objects in memory
	Parked    int // waiting requests
	Ops       int // host work under way

	InstanceCap  int64         // bytes an instance may hold (staged + held + quarantined); 0: half of the pool
	ParkedCap    int           // waiting requests of one instance
	FenceCap     int           // deletes and clears of one instance that wait for the disk, and of all peers without one
	FenceKeysCap int           // keys in these, beyond those of the first
	TransferTime time.Duration // after which an open store is refused at commit, and a connection closed that does not move its payload
	LeaseTime    time.Duration // after which a lease without slots ends
	PinBudget    int64         // bytes that may be pinned; 0: a quarter of the pool; negative: PIN is unsupported
	PinTime      time.Duration // how long a pin may last
	ReapAfter    time.Duration // after which an instance that sends nothing ends; 0: never

	Advise func(memory []byte) // told of the memory of large tables before it is used; may be nil

	Seed     uint64
	HashMask uint64 // 0: all bits; tests fold the hash to make keys collide
}

// WithDefaults fills the fields that are zero.
func (c Config) WithDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Conns, 1024)
	def(&c.Instances, 1024)
	def(&c.Transfers, 16384)
	def(&c.Entries, 1<<18)
	def(&c.Parked, 256)
	def(&c.Ops, 1<<15)
	def(&c.ParkedCap, 16)
	def(&c.FenceCap, 256)
	def(&c.FenceKeysCap, 1<<15)
	if c.Objects == 0 {
		c.Objects = int(min(max(c.Pool.Size>>13, 1024), 1<<21))
	}
	if c.InstanceCap == 0 {
		c.InstanceCap = c.Pool.Size / 2
	}
	if c.TransferTime == 0 {
		c.TransferTime = 10 * time.Minute
	}
	if c.LeaseTime == 0 {
		c.LeaseTime = time.Minute
	}
	if c.PinBudget == 0 {
		c.PinBudget = c.Pool.Size / 4
	}
	if c.PinTime == 0 {
		c.PinTime = time.Hour
	}
	return c
}

// Validate says what is wrong with a config that has its defaults. The sizes relate as
// follows: a connection may have one request under way that needs an op (its payload)
// and one reply that does, so there must be at least two ops a connection; a transfer
// without an entry does not exist, so entries are at least transfers.
func (c Config) Validate() error {
	switch {
	case c.Boot == 0:
		return errors.New("engine: the boot id is 0")
	case c.Pool.Size <= 0:
		return fmt.Errorf("engine: the pool has %d bytes", c.Pool.Size)
	case c.Ops < max(2*c.Conns, 8):
		return fmt.Errorf("engine: %d ops for %d connections", c.Ops, c.Conns)
	case c.Transfers < 2:
		return fmt.Errorf("engine: %d transfers, of which an instance has half at most", c.Transfers)
	case c.Entries < c.Transfers:
		return fmt.Errorf("engine: %d entries for %d transfers", c.Entries, c.Transfers)
	case c.PinBudget > c.Pool.Size:
		return fmt.Errorf("engine: %d bytes may be pinned in a pool of %d", c.PinBudget, c.Pool.Size)
	case c.PinTime < time.Millisecond || c.PinTime > PinTimeMax:
		return fmt.Errorf("engine: a pin may last %v: give a millisecond to %v", c.PinTime, PinTimeMax)
	}
	return nil
}
