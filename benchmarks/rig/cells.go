package rig

import (
	"context"
	"fmt"
	"slices"

	"github.com/slotcache/slotcache/benchmarks/load"
)

// A Cell is one thing that is measured, as often as there are rounds.
type Cell struct {
	Name   string
	Group  Group
	Series string // what it belongs to in a diagram over sizes or connections
	Size   int64  // of a value, in bytes
	Conns  int
	Once   bool // dear: measured in the first round only
	Take   func(context.Context, *Rig) (Sample, error)
}

// A Group is a kind of cells.
type Group string

// The groups.
const (
	RPC   Group = "rpc"   // requests without bytes
	Data  Group = "data"  // bytes in and out
	Peers Group = "peers" // the same at others
	Whole Group = "whole" // a server under a load of its own
)

// At has a worker do a job at a server.
func at(p Place, j load.Job) func(context.Context, *Rig) (Sample, error) {
	return func(ctx context.Context, r *Rig) (Sample, error) { return r.job(ctx, p, j) }
}

// request is a cell of requests on a number of connections; 0 for one that blocks.
func request(name string, p Place, j load.Job) Cell {
	return Cell{Name: name, Group: RPC, Series: fmt.Sprintf("%s %s", p.Name, j.Kind), Conns: max(j.Conns, 1), Take: at(p, j)}
}

// The names of cells that figures are made of.
const (
	echo1     = "echo 1"
	echo1C    = "echo in C 1"
	spin1     = "echo spinning 1"
	echo16    = "echo 16"
	net16     = "net echo 16"
	net1      = "net echo 1"
	ping1     = "ping 1"
	ping1Spin = "ping 1, server spins"
	ping16    = "ping 16"
	store1    = "prepare+commit 1"
	stream1   = "prepare+commit 1, in one round trip"
	look512   = "lookup of 512 keys"
	sysCalls  = "system calls of ping %d"
)

func ownPlace() Place { return Place{Name: Main} }

// dataPlace is where values are stored and retrieved.
func dataPlace() Place { return Place{Name: Rotating} }

// figureRequests are the cells of requests that the figures need, neighbours those that are
// compared.
func figureRequests() []Cell {
	ping := load.Job{Kind: load.KindPing}
	cells := []Cell{
		request(echo1, Place{Name: Epoll}, load.Job{Kind: load.KindEcho}),
		request(ping1, ownPlace(), ping),
		request(ping1Spin, Place{Name: Spinning}, ping),
		request(store1, ownPlace(), load.Job{Kind: load.KindStore, Size: 4096}),
		request(stream1, ownPlace(), load.Job{Kind: load.KindSetStream, Size: 64}),
		request(look512, ownPlace(), load.Job{Kind: load.KindLookup, Count: 512, Size: 64}),
		request(echo1C, Place{Name: EpollC}, load.Job{Kind: load.KindEcho}),
		request(spin1, Place{Name: Spin}, load.Job{Kind: load.KindSpin}),
		request(net1, Place{Name: Net}, load.Job{Kind: load.KindEcho}),
		request(net16, Place{Name: Net}, load.Job{Kind: load.KindEcho, Conns: 16}),
		request(ping16, ownPlace(), load.Job{Kind: load.KindPing, Conns: 16}),
		request(echo16, Place{Name: Epoll}, load.Job{Kind: load.KindEcho, Conns: 16}),
	}
	for _, conns := range []int{1, 16, 256} {
		c := request(fmt.Sprintf(sysCalls, conns), ownPlace(), load.Job{})
		c.Series, c.Conns = "", conns
		c.Take = func(ctx context.Context, r *Rig) (Sample, error) { return r.syscalls(ctx, conns) }
		cells = append(cells, c)
	}
	return cells
}

// mostKeys is how many keys all lookups under way have together at most: 32 MiB of requests, half of what a server keeps
// of frames that are not whole.
const mostKeys = 1 << 20

// deep is how many requests are under way on each of a number of connections when they are pipelined; 1: none are.
func deep(j *load.Job, conns int) int {
	if conns == 1 {
		return 1 // it blocks
	}
	return min(16, mostKeys/max(j.Count*conns, 1))
}

// Requests are the cells of the whole matrix of requests, on some numbers of connections.
func Requests(free bool, numbers []int) []Cell {
	var cells []Cell
	own, suffix := Place{Name: Main, Free: free}, ""
	if free {
		suffix = ", unpinned"
	}
	add := func(name string, p Place, j load.Job) {
		for _, conns := range numbers {
			cells = append(cells, traced(fmt.Sprintf("%s, %d conns%s", name, conns, suffix), name+suffix, p, j, conns, 1))
			if depth := deep(&j, conns); depth > 1 {
				label := fmt.Sprintf("%s, %d conns x %d%s", name, conns, depth, suffix)
				cells = append(cells, traced(label, name+" pipelined"+suffix, p, j, conns, depth))
			}
		}
	}
	if slices.Contains(numbers, 1) {
		cells = append(cells,
			request(echo1C+suffix, Place{Name: EpollC, Free: free}, load.Job{Kind: load.KindEcho}),
			request(spin1+suffix, Place{Name: Spin, Free: free}, load.Job{Kind: load.KindSpin}))
	}
	add("epoll echo", Place{Name: Epoll, Free: free}, load.Job{Kind: load.KindEcho})
	add("net echo", Place{Name: Net, Free: free}, load.Job{Kind: load.KindEcho})
	add("ping", own, load.Job{Kind: load.KindPing})
	for _, keys := range []int{1, 64, 512, 4096} {
		add(fmt.Sprintf("lookup %d", keys), own, load.Job{Kind: load.KindLookup, Count: keys, Size: 64})
	}
	add("prepare+commit", own, load.Job{Kind: load.KindStore, Size: 4096})
	add("retrieve+release", own, load.Job{Kind: load.KindRetrieve, Size: 4096})
	return cells
}

// traced is a cell of requests whose system calls and heap objects are counted, too.
func traced(name, series string, p Place, j load.Job, conns, depth int) Cell {
	j.Conns, j.Depth = conns, depth
	if conns == 1 {
		j.Conns = 0 // one that blocks
	}
	c := request(name, p, j)
	c.Series = series
	c.Take = func(ctx context.Context, r *Rig) (Sample, error) { return r.requests(ctx, p, j) }
	return c
}

// Sizes of values.
const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// The names of cells with bytes that figures are made of, by kind and size.
func dataName(kind load.Kind, size int64) string { return fmt.Sprintf("%s %s", kind, SizeName(size)) }

const (
	copy16  = "copy 16 x 1MiB"
	set16   = "set 16 x 1MiB"
	ping1MB = "ping beside data"
	two     = "copy 1MiB, two threads"
	four    = "set 1MiB, four workers"
	copies  = "copy 1MiB, four workers"
	oneFree = "set 1MiB, one worker, unpinned"
)

// SizeName writes a size in bytes in a short form.
func SizeName(n int64) string {
	switch {
	case n >= mib:
		return fmt.Sprintf("%dMiB", n/mib)
	case n >= kib:
		return fmt.Sprintf("%dKiB", n/kib)
	}
	return fmt.Sprintf("%dB", n)
}

// moving is a cell that moves values.
func moving(group Group, p Place, kind load.Kind, size int64) Cell {
	return Cell{
		Name: dataName(kind, size), Group: group, Series: string(kind), Size: size,
		Take: at(p, load.Job{Kind: kind, Size: size}),
	}
}

// figureData are the cells with bytes that the figures need.
func figureData() []Cell {
	own := dataPlace()
	var cells []Cell
	for _, size := range []int64{32 * mib, mib} {
		cells = append(cells, moving(Data, own, load.KindCopy, size), moving(Data, own, load.KindSet, size))
	}
	cells = append(cells,
		moving(Data, own, load.KindSetAhead, mib),
		Cell{Name: copy16, Group: Data, Size: mib, Take: at(own, load.Job{Kind: load.KindCopy, Size: mib, Count: 16})},
		Cell{Name: set16, Group: Data, Size: mib, Take: at(own, load.Job{Kind: load.KindSet, Size: mib, Count: 16})},
		moving(Data, own, load.KindGetInPlace, 32*mib),
		request(ping1MB, own, load.Job{Kind: load.KindPing}),
	)
	redis, memcached := Place{Name: Redis}, Place{Name: Memcached}
	cells = append(cells, moving(Data, own, load.KindPut, 64*kib), moving(Data, own, load.KindSet, 64*kib))
	for _, size := range []int64{64 * kib, mib} {
		cells = append(cells,
			moving(Data, own, load.KindSetStream, size), moving(Peers, redis, load.KindRedisSet, size),
			moving(Data, own, load.KindGet, size), moving(Peers, redis, load.KindRedisGet, size))
	}
	const large = 32 * mib
	return append(cells,
		moving(Data, own, load.KindGetInPlace, mib), moving(Data, own, load.KindTouch, large),
		moving(Data, own, load.KindSetStream, large), moving(Peers, memcached, load.KindMemcachedSet, large), pickled("set", large),
		moving(Data, own, load.KindGet, large), moving(Peers, memcached, load.KindMemcachedGet, large), pickled("get", large),
	)
}

func pickled(what string, size int64) Cell {
	return Cell{
		Name: "pickle_" + what + " " + SizeName(size), Group: Peers, Series: "pickle_" + what, Size: size,
		Take: func(ctx context.Context, r *Rig) (Sample, error) { return r.pickle(ctx, what, size) },
	}
}

// Values are the cells of the whole matrix of values in and out, of some sizes in bytes.
func Values(sizes []int64) []Cell {
	own := dataPlace()
	var cells []Cell
	for _, size := range sizes {
		for _, kind := range []load.Kind{
			load.KindCopy, load.KindSet, load.KindSetStream, load.KindSetAhead, load.KindPut, load.KindGet, load.KindGetInPlace, load.KindSetInline, load.KindGetInline,
		} {
			cells = append(cells, moving(Data, own, kind, size))
		}
		cells = append(cells, moving(Data, Place{Name: Raw}, load.KindRawSet, size), moving(Data, Place{Name: Raw}, load.KindRawGet, size))
		for _, kind := range []load.Kind{load.KindSet, load.KindGet} {
			c := moving(Data, own, kind, size)
			c.Name += ", cold mapping"
			c.Series = string(kind) + ", cold mapping"
			c.Take = at(own, load.Job{Kind: kind, Size: size, Cold: true})
			cells = append(cells, c)
		}
		for _, kind := range []load.Kind{load.KindSet, load.KindGet, load.KindGetInPlace, load.KindSetInline, load.KindGetInline} {
			for _, workers := range []int{2, 4} {
				cells = append(cells, shared(kind, size, workers))
			}
		}
	}
	return append(cells, Cell{Name: two, Group: Data, Size: mib, Take: takeTwo})
}

// Against are the cells of the whole comparison with peers, of some sizes in bytes.
func Against(sizes []int64) []Cell {
	var cells []Cell
	for _, size := range sizes {
		for _, way := range []struct {
			ours  []load.Kind
			redis load.Kind
			mem   load.Kind
			name  string
		}{
			{[]load.Kind{load.KindSet, load.KindSetStream, load.KindSetAhead}, load.KindRedisSet, load.KindMemcachedSet, "set"},
			{[]load.Kind{load.KindGet, load.KindGetInPlace}, load.KindRedisGet, load.KindMemcachedGet, "get"},
		} {
			for _, kind := range way.ours {
				cells = append(cells, moving(Data, dataPlace(), kind, size))
			}
			cells = append(cells, moving(Peers, Place{Name: Redis}, way.redis, size),
				moving(Peers, Place{Name: Memcached}, way.mem, size), pickled(way.name, size))
		}
	}
	return cells
}

// Curves are the cells of the report's diagrams that no figure needs.
func Curves() []Cell {
	own := dataPlace()
	var cells []Cell
	for _, size := range []int64{4 * kib, 64 * kib, mib, 8 * mib, 32 * mib} {
		for _, kind := range []load.Kind{load.KindCopy, load.KindSet, load.KindSetStream, load.KindSetAhead, load.KindGet} {
			cells = append(cells, moving(Data, own, kind, size))
		}
		cells = append(cells, moving(Data, Place{Name: Raw}, load.KindRawSet, size))
	}
	return cells
}

// shared is a cell of several workers at one server, none pinned.
func shared(kind load.Kind, size int64, workers int) Cell {
	c := moving(Data, dataPlace(), kind, size)
	c.Series = fmt.Sprintf("%s, %d workers", kind, workers)
	c.Name = fmt.Sprintf("%s, %d workers", c.Name, workers)
	c.Take = func(ctx context.Context, r *Rig) (Sample, error) {
		return r.sharing(ctx, Place{Name: Rotating, Free: true}, workers, load.Job{Kind: kind, Size: size})
	}
	return c
}
