package client

import (
	"context"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// Names of the protocol that callers need, so that they need not import it.
type (
	// Key names an object within a namespace and a layout.
	Key = proto.Key
	// Layout says what the objects stored under it are.
	Layout = proto.Layout
	// Counter is a named number of the server.
	Counter = proto.Counter
	// InstanceInfo describes a registered instance.
	InstanceInfo = proto.InstanceInfo
	// TransferInfo describes an open store, retrieve or lease.
	TransferInfo = proto.TransferInfo
)

// pagesMax bounds a paged list, should a server never end it.
const pagesMax = 1 << 16

// A Pong is the answer to a ping.
type Pong struct {
	Ready  int64         // bytes of the server's memory that are populated, from its start
	Uptime time.Duration // since the server started
}

// Ping asks whether the server lives.
func (c *Conn) Ping(ctx context.Context) (Pong, error) {
	var p Pong
	err := c.attempt(ctx, func(l *link) (err error) {
		p, err = l.ping(ctx, nil)
		return err
	})
	return p, err
}

// ping ends with ErrClosed when stop is closed.
func (l *link) ping(ctx context.Context, stop <-chan struct{}) (Pong, error) {
	k := newCall(proto.OpPing)
	k.stop = stop
	if err := l.roundTrip(ctx, k); err != nil {
		return Pong{}, err
	}
	defer k.free()
	var x proto.PingReply
	if err := proto.ParsePingReply(k.body, &x); err != nil {
		return Pong{}, l.broken(k.op, "%v", err)
	}
	return Pong{Ready: int64(x.Ready), Uptime: time.Duration(x.UptimeMs) * time.Millisecond}, nil
}

// Stats reads the server's counters, in the server's order.
func (c *Conn) Stats(ctx context.Context) ([]Counter, error) {
	var x proto.StatsReply
	err := c.attempt(ctx, func(l *link) error {
		k := newCall(proto.OpStats)
		if err := l.roundTrip(ctx, k); err != nil {
			return err
		}
		defer k.free()
		if err := proto.ParseStatsReply(k.body, &x); err != nil {
			return l.broken(k.op, "%v", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x.Counters, nil
}

// Instances lists the registered instances.
func (c *Conn) Instances(ctx context.Context) ([]InstanceInfo, error) {
	var all []InstanceInfo
	err := c.attempt(ctx, func(l *link) (err error) {
		all, err = l.instances(ctx)
		return err
	})
	return all, err
}

func (l *link) instances(ctx context.Context) ([]InstanceInfo, error) {
	var all []InstanceInfo
	var cursor uint64
	for range pagesMax {
		k := newCall(proto.OpInstances)
		k.frame = proto.AppendInstances(k.frame, &proto.Instances{Cursor: cursor})
		if err := l.roundTrip(ctx, k); err != nil {
			return nil, err
		}
		var x proto.InstancesReply
		if err := proto.ParseInstancesReply(k.body, &x); err != nil {
			return nil, l.broken(k.op, "%v", err)
		}
		k.free()
		all = append(all, x.Instances...)
		if cursor = x.Next; cursor == 0 {
			return all, nil
		}
	}
	return nil, l.broken(proto.OpInstances, "more than %d pages", pagesMax)
}

// Transfers lists the open stores, retrieves and leases of all instances.
func (c *Conn) Transfers(ctx context.Context) ([]TransferInfo, error) {
	var all []TransferInfo
	err := c.attempt(ctx, func(l *link) (err error) {
		all, err = l.transfers(ctx)
		return err
	})
	return all, err
}

func (l *link) transfers(ctx context.Context) ([]TransferInfo, error) {
	var all []TransferInfo
	var cursor uint64
	for range pagesMax {
		k := newCall(proto.OpTransfers)
		k.frame = proto.AppendTransfers(k.frame, &proto.Transfers{Cursor: cursor})
		if err := l.roundTrip(ctx, k); err != nil {
			return nil, err
		}
		var x proto.TransfersReply
		if err := proto.ParseTransfersReply(k.body, &x); err != nil {
			return nil, l.broken(k.op, "%v", err)
		}
		k.free()
		all = append(all, x.Transfers...)
		if cursor = x.Next; cursor == 0 {
			return all, nil
		}
	}
	return nil, l.broken(proto.OpTransfers, "more than %d pages", pagesMax)
}

// An Eviction is what came of the end of an instance.
type Eviction struct {
	Freed    int64 // bytes that it had and has no more
	Draining int64 // bytes that it keeps until its process ends, or the server's I/O
}

// EvictInstance ends an instance, every life of its id, against its will. What its process
// cannot touch comes back at once. With kill the processes that have shared memory are
// killed; the call does not wait for their end, after which the instance is not in
// [Conn.Instances] any more. The error is [ErrStale] if there is no such instance.
func (c *Conn) EvictInstance(ctx context.Context, instance uint64, kill bool) (Eviction, error) {
	var out Eviction
	err := c.attempt(ctx, func(l *link) error {
		k := newCall(proto.OpEvict)
		k.frame = proto.AppendEvict(k.frame, &proto.Evict{Instance: instance, Kill: kill})
		if err := l.roundTrip(ctx, k); err != nil {
			return err
		}
		defer k.free()
		var x proto.EvictReply
		if err := proto.ParseEvictReply(k.body, &x); err != nil {
			return l.broken(k.op, "%v", err)
		}
		out = Eviction{Freed: int64(x.Freed), Draining: int64(x.Draining)}
		return nil
	})
	return out, err
}

// ClearNamespace removes all objects of a namespace and returns how many of them were in
// memory. If the server's disk could not be told, a restart of the server may undo it; that
// is not an error.
func (c *Conn) ClearNamespace(ctx context.Context, namespace string) (int64, error) {
	if err := proto.CheckName(namespace); err != nil {
		return 0, err
	}
	var n int64
	err := c.attempt(ctx, func(l *link) (err error) {
		n, err = l.clear(ctx, nil, namespace)
		return err
	})
	return n, err
}

// clear ends with ErrClosed when stop is closed.
func (l *link) clear(ctx context.Context, stop <-chan struct{}, namespace string) (int64, error) {
	k := newCall(proto.OpClear)
	k.stop = stop
	k.frame = proto.AppendClear(k.frame, &proto.Clear{Namespace: namespace})
	if err := l.roundTrip(ctx, k); err != nil {
		return 0, err
	}
	defer k.free()
	var x proto.ClearReply
	if err := proto.ParseClearReply(k.body, &x); err != nil {
		return 0, l.broken(k.op, "%v", err)
	}
	return int64(x.Deleted), nil
}
