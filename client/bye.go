package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// byeTime is how long the end of a worker waits for a server that does not answer.
const byeTime = 3 * time.Second

// bye tells the server, once, that this process touches none of its memory any more, and closes the
// link. Only when everybody has left, this link's predecessors too, may that be said. It waits for the answer, for
// some time: what is only queued here, or sent while the server writes to a closed socket, may
// never be read, and the server would keep all of it until this process ends.
func (s *session) bye() {
	s.parting.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), byeTime)
		defer cancel()
		if _, err := s.part(ctx); err != nil {
			s.link.log.Debug("client: unregister", "err", err)
		}
		s.link.fail(ErrClosed)
	})
}

// part unregisters. Where another worker of this process has the same instance it must not,
// and only sees to it that the server has read all that was sent.
func (s *session) part(ctx context.Context) (draining int64, err error) {
	done, alone := present.part(s.identity(), s.worker)
	defer done()
	switch {
	case !alone:
		_, err = s.link.ping(ctx, nil)
		s.link.lost(errShared) // the next call connects anew
		return 0, err
	case s.link.alive():
		return s.link.unregister(ctx)
	}
	return s.unregisterAnew(ctx)
}

// errShared ends the link of a worker whose instance others have, too.
var errShared = errors.New("another worker of this process stays registered as this instance")

// unregister makes the request.
func (l *link) unregister(ctx context.Context) (draining int64, err error) {
	c := newCall(proto.OpUnregister)
	if err := l.roundTrip(ctx, c); err != nil {
		return 0, err
	}
	var x proto.UnregisterReply
	if err := proto.ParseUnregisterReply(c.body, &x); err != nil {
		return 0, l.broken(c.op, "%v", err)
	}
	c.free()
	return int64(x.Draining), nil
}

// unregisterAnew is for a link that is lost. If the server is still the same it keeps for this process
// what it had, and is told over a link that lasts as long as that takes.
func (s *session) unregisterAnew(ctx context.Context) (int64, error) {
	w := s.worker
	l, err := dialLink(ctx, w.conn.addr, &w.conn.opts)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	defer func() {
		l.fail(ErrClosed)
		<-l.read
	}()
	if l.boot != s.link.boot {
		return 0, nil // that server is gone, with all it kept
	}
	_, fd, err := w.request(ctx, l, w.reg.Want, nil)
	closeFD(fd)
	if err != nil {
		return 0, err
	}
	return l.unregister(ctx)
}
