// Package access decides who may come in and what for: it reads the list of tokens and
// users, and finds what a peer is granted. It is pure: files are read elsewhere.
//
// Who a peer is, the kernel says (a Unix socket's peer has a user and groups), and its
// token. On a Unix socket the user has to be let in before any token counts. What the peer
// may do then is what its token says; without tokens, what its user does.
package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
)

// A Grant is what a peer may do. It is never changed once it was given.
type Grant struct {
	// Namespaces are those whose objects it may use and whose instances it sees; All, any.
	Namespaces []string
	All        bool
	Shared     bool // it may map the pool, and with that read and write all of it
	Admin      bool // it may see and end every instance
}

// Everything is a grant of all there is.
var Everything = &Grant{All: true, Shared: true, Admin: true}

// Allows says whether the objects of a namespace may be used.
func (g *Grant) Allows(namespace string) bool {
	return g.All || slices.Contains(g.Namespaces, namespace)
}

// Sees says whether what there is of a namespace may be told.
func (g *Grant) Sees(namespace string) bool { return g.Admin || g.Allows(namespace) }

// Whole says whether the numbers of the whole server may be told.
func (g *Grant) Whole() bool { return g.Admin || g.All }

// Equal says whether two grants are the same.
func (g *Grant) Equal(o *Grant) bool {
	return g.All == o.All && g.Shared == o.Shared && g.Admin == o.Admin && slices.Equal(g.Namespaces, o.Namespaces)
}

// A Peer is who the kernel says is at the other end. The zero Peer is one of TCP, of whom
// it says nothing.
type Peer struct {
	Local  bool // a Unix socket: the rest is known
	UID    uint32
	Groups []uint32 // the user's, as far as [List.WantsGroups]
}

// A Digest stands for a token, so that none is kept. The zero Digest is that of no token.
type Digest [sha256.Size]byte

// DigestOf is the digest of a token.
func DigestOf(token string) Digest {
	if token == "" {
		return Digest{}
	}
	return sha256.Sum256([]byte(token))
}

// Verdict says whether a peer comes in, or why not.
type Verdict uint8

// The verdicts.
const (
	Granted    Verdict = iota
	Stranger           // its user is not let in
	NoToken            // it has no token, and the server asks for one
	WrongToken         // its token is not one of the list
)

// String says it in words.
func (v Verdict) String() string {
	switch v {
	case Granted:
		return "granted"
	case Stranger:
		return "its user is not let in"
	case NoToken:
		return "it has no token"
	case WrongToken:
		return "its token is not known"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// A rule grants something to the bearer of a token, or to a user or group.
type rule struct {
	kind  ruleKind
	token Digest
	id    uint32 // of a user or group
	grant *Grant
}

// ruleKind is whom a rule is about.
type ruleKind uint8

const (
	ruleToken ruleKind = iota
	ruleUser
	ruleGroup
)

// A List is who may come in. It is built once and not changed after that, so that it may be
// used by any goroutine.
type List struct {
	owner  uint32 // the server's user
	rules  []rule
	users  []uint32 // that are let in besides
	groups []uint32
	closed bool // who is in no rule does not come in
}

// New returns a list that lets in the server's user, and TCP peers, and asks for no token.
func New(owner uint32) *List { return &List{owner: owner} }

// LetIn lets users and groups in: with their tokens, where some are asked for, and else to all
// namespaces and the pool.
func (l *List) LetIn(users, groups []uint32) {
	l.users = append(l.users, users...)
	l.groups = append(l.groups, groups...)
}

// AddToken grants something to the bearer of a token, which must not be empty.
func (l *List) AddToken(token string, g *Grant) {
	l.rules = append(l.rules, rule{kind: ruleToken, token: DigestOf(token), grant: g})
	l.closed = true
}

// Empty says whether the file had nobody in it.
func (l *List) Empty() bool { return len(l.rules) == 0 }

// WantsGroups says whether a peer's groups matter.
func (l *List) WantsGroups() bool { return len(l.groups) > 0 }

// letIn says whether a user of this machine may connect at all.
func (l *List) letIn(p *Peer) bool {
	if p.UID == l.owner || slices.Contains(l.users, p.UID) {
		return true
	}
	return slices.ContainsFunc(p.Groups, func(g uint32) bool { return slices.Contains(l.groups, g) })
}

// Find says what a peer with the token of a digest is granted; the grant is nil if it does
// not come in. How long it takes does not depend on how much of a token is right.
func (l *List) Find(p *Peer, token Digest) (*Grant, Verdict) {
	if p.Local && !l.letIn(p) {
		return nil, Stranger
	}
	if token != (Digest{}) && l.closed {
		var found *Grant
		for i := range l.rules {
			if r := &l.rules[i]; r.kind == ruleToken && subtle.ConstantTimeCompare(r.token[:], token[:]) == 1 {
				found = r.grant
			}
		}
		if found == nil {
			return nil, WrongToken
		}
		return found, Granted
	}
	for i := range l.rules {
		r := &l.rules[i]
		if p.Local && (r.kind == ruleUser && r.id == p.UID || r.kind == ruleGroup && slices.Contains(p.Groups, r.id)) {
			return r.grant, Granted
		}
	}
	switch {
	case l.closed:
		return nil, NoToken
	case !p.Local: // any user of this machine
		return &Grant{All: true}, Granted
	case p.UID == l.owner:
		return Everything, Granted
	}
	return &Grant{All: true, Shared: true}, Granted
}
