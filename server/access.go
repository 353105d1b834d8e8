package server

import (
	"fmt"
	"os"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
	"github.com/slotcache/slotcache/server/engine"
)

// Access says who may come in. The zero Access lets in this process's user alone, on Unix
// sockets, and whoever reaches a TCP address, which must be a loopback one then.
type Access struct {
	// Token is a word that every client must present, and may do everything with. TokenFile
	// names a file of tokens, with what each is for; see [access.List.Read].
	Token     string
	TokenFile string
	// Users and Groups may connect to Unix sockets besides this process's user. Without
	// tokens they may use all namespaces, and the pool.
	Users, Groups []uint32

	SocketMode  os.FileMode // of Unix sockets; 0: 0600
	SocketGroup *uint32     // of Unix sockets, which is one of Groups by that; nil: this process's
}

// nobody is the user of a peer that the kernel does not tell of. No user has this number.
const nobody = ^uint32(0)

// list makes the list of who may come in.
func (a *Access) list() (*access.List, error) {
	l := access.New(uint32(os.Geteuid()))
	l.LetIn(a.Users, a.Groups)
	if a.SocketGroup != nil {
		l.LetIn(nil, []uint32{*a.SocketGroup})
	}
	if a.Token != "" {
		l.AddToken(a.Token, access.Everything)
	}
	if a.TokenFile == "" {
		return l, nil
	}
	text, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("server: read the tokens: %w", err)
	}
	if err := l.Read(text); err != nil {
		return nil, fmt.Errorf("server: read the tokens of %s: %w", a.TokenFile, err)
	}
	return l, nil
}

// openAccess reads who may come in.
func (s *Server) openAccess() error {
	l, err := s.cfg.Access.list()
	if err != nil {
		return err
	}
	s.r.access = l
	if file := s.cfg.Access.TokenFile; file != "" {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
			s.cfg.Logger.Warn("everybody on this machine may read the tokens: chmod 600", "file", file)
		}
		if l.Empty() {
			s.cfg.Logger.Warn("the file of tokens has none: nobody can come in until it does and SIGHUP has it read again", "file", file)
		}
	}
	return nil
}

// Reload reads the file of tokens again, while the server runs. Clients whose token is for
// something else now, or for nothing, are disconnected. After an error all is as before.
func (s *Server) Reload() error {
	l, err := s.cfg.Access.list()
	if err != nil {
		return err
	}
	s.r.reread.Store(l)
	s.r.ring.Wake()
	return nil
}

// reload takes the list that was read.
func (r *reactor) reload() {
	if r.reread.Load() == nil {
		return
	}
	r.access = r.reread.Swap(nil)
	r.core.SetAccess(r.now, r.access)
	r.stepDeferred()
	r.log.Info("tokens read again")
}

// registeredText is the line of each registration.
const registeredText = "worker registered"

// tell logs what the engine says.
func (r *reactor) tell(n *engine.Notice) {
	switch n.Kind {
	case engine.NoticeDenied:
		r.complain("a client did not come in: see who may in the documentation of --allow-uid and --token-file",
			"why", n.Verdict.String(), "pid", n.Peer.PID, "uid", n.Peer.UID, "unix", n.Peer.Local)
	case engine.NoticeRegistered:
		if r.stepping != nil {
			r.stepping.enrolled = true
		}
		if r.limiter.shut(registeredText) {
			return
		}
		args := []any{
			"instance", fmt.Sprintf("%016x", n.Instance), "incarnation", n.Incarnation, "name", n.Name, "namespace", n.Namespace,
			"pid", n.Peer.PID, "transport", n.Transport.String(),
		}
		if n.Transport == proto.TransportShared {
			args = append(args, "shm", n.Shm.String(), "segment", n.Segment, "size", r.pool.Size(),
				"trust", "it can read and write the whole pool, as all workers with shared memory can")
		}
		r.log.Info(registeredText, args...)
	case engine.NoticeReaped:
		r.complain("a worker was silent for too long and is not registered any more (--reap-after)", "instance", fmt.Sprintf("%016x", n.Instance),
			"incarnation", n.Incarnation, "name", n.Name, "namespace", n.Namespace, "pid", n.Peer.PID)
	}
}
