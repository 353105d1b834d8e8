package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/benchmarks/sched"
	"github.com/slotcache/slotcache/proto"
)

const (
	attackSize  = 16 << 10 // bytes of an object that an attacker stores
	silentConns = 1500     // connections that say nothing, and as many as there may be by default
	slowConns   = 64       // connections that send a byte at a time
	deafConns   = 16       // connections that never read
	halfConns   = 256      // connections that send the first part of a large frame, more than the server has memory for
	halfSize    = 300_000  // bytes of that part, of which
	wholeSize   = 500_000  // would be the whole body
	halfStore   = 1 << 20  // bytes of an object of which half is sent
	slowPause   = 20 * time.Millisecond
	burst       = 256 // requests that are sent at once
	lookupKeys  = 512
)

// An assault is one attacker at work.
type assault struct {
	opts  AttackerOptions
	addrs [2]string
	r     *rand.Rand
	tally Tally
	open  []*peer // kept from round to round
	key   uint64
}

// A Tally says what an attacker did.
type Tally struct {
	Kind        string `json:"kind"`
	Connections int64  `json:"connections"`
	Frames      int64  `json:"frames"` // whole ones that could be sent
	Bytes       int64  `json:"bytes"`
}

// AttackerOptions describe an attacker.
type AttackerOptions struct {
	Kind      string
	Unix, TCP string // addresses of the server
	Seed      uint64
	Idle      bool // burn as much processor time as there is, and send nothing
}

// Halves is the kind of attack that takes all the memory that the server has for unfinished frames, and is made by itself or
// when it is asked for.
const Halves = "halves"

// kinds are the attacks: each is a round, after which there is another.
var kinds = []struct {
	name  string
	round func(*assault)
}{
	{"connect", (*assault).connect},
	{"silent", (*assault).silent},
	{"slowloris", (*assault).slowloris},
	{"garbage", (*assault).garbage},
	{"reset", (*assault).reset},
	{"halfclose", (*assault).halfClose},
	{"deaf", (*assault).deaf},
	{"requests", (*assault).requests},
	{"stores", (*assault).stores},
	{Halves, (*assault).halves},
}

// Kinds are the names of the attacks.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// RunAttacker attacks until its input ends, and writes a [Tally]. What the server does to it is no error.
func RunAttacker(ctx context.Context, opts AttackerOptions, in io.Reader, out io.Writer) error {
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, 19) // where the next is refused
	_ = sched.Last()                            // what the kernel refuses of this it goes without
	i := slices.Index(Kinds(), opts.Kind)
	if i < 0 {
		return fmt.Errorf("attack: no attack %q", opts.Kind)
	}
	x := &assault{
		opts: opts, addrs: [2]string{opts.Unix, opts.TCP}, r: rand.New(rand.NewPCG(opts.Seed, uint64(i))),
		tally: Tally{Kind: opts.Kind}, key: opts.Seed << 32,
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in) // until it is closed
		cancel()
	}()
	for ctx.Err() == nil {
		if !opts.Idle {
			kinds[i].round(x)
		}
	}
	return json.NewEncoder(out).Encode(&x.tally)
}

// addr is either of the server's addresses.
func (x *assault) addr() string { return x.addrs[x.r.IntN(2)] }

// each keeps up to n connections in the state that begin leaves them in, and does something to one of them.
func (x *assault) each(n int, begin, then func(*peer) error) {
	if len(x.open) < n {
		if p, err := x.dial(x.addr()); err != nil {
			time.Sleep(time.Millisecond) // the backlog is full
		} else if begin(p) == nil {
			x.open = append(x.open, p)
		} else {
			_ = p.Close()
		}
	}
	if len(x.open) == 0 {
		return
	}
	i := x.r.IntN(len(x.open))
	if err := then(x.open[i]); err != nil {
		_ = x.open[i].Close()
		x.open = slices.Delete(x.open, i, i+1)
	}
}

// connect connects and goes, as fast as it can.
func (x *assault) connect() {
	if p, err := x.dial(x.addr()); err == nil {
		if x.r.IntN(2) == 0 {
			_ = p.send(helloFrame, 1)
		}
		_ = p.Close()
	}
}

// silent fills the server's table with connections that say nothing, and opens others in the place of those that were
// closed for it.
func (x *assault) silent() {
	x.each(silentConns, func(p *peer) error {
		if x.r.IntN(2) == 0 {
			return p.greet()
		}
		return nil
	}, func(p *peer) error {
		if len(x.open) < silentConns {
			return nil
		}
		_ = p.SetReadDeadline(time.Now().Add(time.Millisecond)) // a closed connection is noticed by the read
		_, err := p.Read(make([]byte, 1))
		if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as package net returns it
			return nil
		}
		return err
	})
}

// slowloris sends requests a byte at a time.
func (x *assault) slowloris() {
	x.each(slowConns, func(p *peer) error {
		if x.r.IntN(3) == 0 {
			return nil
		}
		return p.greet()
	}, func(p *peer) error {
		if len(x.open) == slowConns {
			time.Sleep(slowPause / slowConns)
		}
		whole := p.frame(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, lookupKeys)}), nil)
		at := int(p.last) % len(whole)
		return p.send(whole[at:at+1], 0)
	})
}

// garbage sends what is no frame, or one that was damaged.
func (x *assault) garbage() {
	p, err := x.dial(x.addr())
	if err != nil {
		return
	}
	defer p.Close() //nolint:errcheck // it may be closed already
	if x.r.IntN(2) == 0 && p.greet() != nil {
		return
	}
	for range 16 {
		b := make([]byte, 1+x.r.IntN(4096))
		if x.r.IntN(2) == 0 {
			for i := range b {
				b[i] = byte(x.r.Uint32())
			}
		} else {
			b = p.frame(proto.Op(x.r.IntN(32)), b, nil)
			for range 1 + x.r.IntN(4) {
				b[x.r.IntN(min(len(b), 96))] ^= 1 << x.r.IntN(8)
			}
		}
		if p.send(b, 1) != nil {
			return
		}
	}
}

// reset breaks connections in every state.
func (x *assault) reset() {
	p, err := x.dial(x.opts.TCP)
	if err != nil {
		return
	}
	defer p.Close() //nolint:errcheck // that is the point
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	switch x.r.IntN(6) {
	case 0:
	case 1:
		_ = p.send(helloFrame[:1+x.r.IntN(len(helloFrame)-1)], 0)
	case 2:
		_ = p.send(helloFrame, 1)
	case 3:
		if p.greet() == nil {
			_ = p.send(bytes.Repeat(p.frame(proto.OpStats, nil, nil), 64), 64)
		}
	case 4:
		if p.greet() == nil && p.register(x.r.Uint64()|1) == nil {
			_ = p.send(x.prepare(p), 1)
		}
	case 5:
		if p.greet() == nil {
			f := p.frame(proto.OpLookup, make([]byte, 100_000), nil)
			_ = p.send(f[:x.r.IntN(len(f))], 0)
		}
	}
}

// halfClose sends requests and the end of its stream, and reads the replies late or never.
func (x *assault) halfClose() {
	x.each(slowConns, func(p *peer) error {
		if err := p.greet(); err != nil {
			return err
		}
		err := p.send(bytes.Repeat(p.frame(proto.OpStats, nil, nil), 32), 32)
		if c, ok := p.Conn.(interface{ CloseWrite() error }); ok && err == nil {
			err = c.CloseWrite()
		}
		return err
	}, func(p *peer) error {
		if x.r.IntN(4) > 0 {
			return nil
		}
		_, err := p.read()
		return err
	})
}

// deaf sends requests without end and reads no reply.
func (x *assault) deaf() {
	x.each(deafConns, (*peer).greet, func(p *peer) error {
		_ = p.SetWriteDeadline(time.Now().Add(time.Millisecond)) // a closed connection is noticed by the write
		n, err := p.Write(bytes.Repeat(p.frame(proto.OpStats, nil, nil), burst))
		x.tally.Bytes += int64(n)
		if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as package net returns it
			return nil
		}
		return err
	})
}

// requests sends valid requests, many at once, and takes the replies.
func (x *assault) requests() {
	x.each(4, x.enrol, func(p *peer) error {
		var all []byte
		keys := make([]proto.Key, lookupKeys)
		for i := range keys {
			keys[i] = keyOf(x.r.Uint64())
		}
		for i := range burst {
			switch i % 16 {
			case 0:
				all = append(all, p.frame(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: keys}), nil)...)
			case 1:
				all = append(all, p.frame(proto.OpTransfers, proto.AppendTransfers(nil, &proto.Transfers{}), nil)...)
			case 2:
				all = append(all, p.frame(proto.OpInstances, proto.AppendInstances(nil, &proto.Instances{}), nil)...)
			case 3:
				all = append(all, p.frame(proto.OpStats, nil, nil)...)
			default:
				all = append(all, p.frame(proto.OpPing, nil, nil)...)
			}
		}
		return p.exchange(all, burst)
	})
}

// stores stores new objects, and retrieves them.
func (x *assault) stores() {
	x.each(4, x.enrol, func(p *peer) error {
		var out proto.PrepareStoreReply
		if err := p.send(x.prepare(p), 1); err != nil {
			return err
		}
		body, err := p.read()
		if err != nil || proto.ParsePrepareStoreReply(body, &out) != nil || out.Transfer == 0 {
			return err
		}
		payload := make([]byte, attackSize*len(out.Results))
		all := p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), payload)
		all = append(all, p.frame(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: []proto.Key{keyOf(x.key)}}), nil)...)
		return p.exchange(all, 2)
	})
}

// halves sends the first part of large frames, and opens other connections in the place of those that were closed for it. On
// some the frame is a store, which has its slot already.
func (x *assault) halves() {
	x.each(halfConns, func(p *peer) error {
		if p.RemoteAddr().Network() == "unix" && x.r.IntN(2) == 0 {
			if err := x.enrol(p); err != nil {
				return err
			}
			x.key++
			put := p.frame(proto.OpPut, proto.AppendPut(nil, &proto.Put{Key: keyOf(x.key)}), make([]byte, halfStore))
			return p.send(put[:len(put)/2], 0)
		}
		if err := p.greet(); err != nil {
			return err
		}
		return p.send(p.frame(proto.OpLookup, make([]byte, wholeSize), nil)[:halfSize], 0)
	}, func(p *peer) error { return p.send([]byte{0}, 0) })
}

// enrol makes a connection an instance.
func (x *assault) enrol(p *peer) error {
	if err := p.greet(); err != nil {
		return err
	}
	return p.register(x.r.Uint64() | 1)
}

// prepare is a PREPARE_STORE of a few new keys.
func (x *assault) prepare(p *peer) []byte {
	var in proto.PrepareStore
	for range 4 {
		x.key++
		in.Keys, in.Sizes = append(in.Keys, keyOf(x.key)), append(in.Sizes, attackSize)
	}
	return p.frame(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &in), nil)
}

// exchange sends requests and takes as many replies meanwhile.
func (p *peer) exchange(all []byte, replies int) error {
	sent := make(chan error, 1)
	go func() { sent <- p.send(all, replies) }()
	for range replies {
		if _, err := p.read(); err != nil {
			_ = p.Close() // and the send ends
			return errors.Join(err, <-sent)
		}
	}
	return <-sent
}
