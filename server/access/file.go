package access

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slotcache/slotcache/proto"
)

// LineMax is the longest line of a file of tokens, in bytes.
const LineMax = 4096

// Read adds the rules of a file of tokens, which has one a line:
//
//	# who        namespaces      rights
//	TOKEN        llama,mistral   shm
//	TOKEN        *               shm admin
//	uid:1000     *               shm
//	gid:100      ""
//
// Who is a token, or a user or group of this machine that needs none on a Unix socket, and
// is let in by that. Namespaces are names with commas between them, "" the one without a
// name, * any. Lines that are empty or begin with # say nothing. Whom no line is about does not
// come in any more, the server's own user neither. An error names the line and never a token.
func (l *List) Read(text []byte) error {
	l.closed = true
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, LineMax)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := l.readLine(strings.Fields(line)); err != nil {
			return fmt.Errorf("access: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("access: a line is longer than %d bytes", LineMax)
	}
	return nil
}

// readLine adds the rule of one line.
func (l *List) readLine(words []string) error {
	if len(words) < 2 {
		return errors.New("the namespaces are missing: give their names, or *")
	}
	g, err := parseGrant(words[1], words[2:])
	if err != nil {
		return err
	}
	token := words[0]
	if who, number, ok := strings.Cut(token, ":"); ok && (who == "uid" || who == "gid") {
		id, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return fmt.Errorf("%s: it takes a number", who)
		}
		if who == "uid" {
			l.LetIn([]uint32{uint32(id)}, nil)
			l.rules = append(l.rules, rule{kind: ruleUser, id: uint32(id), grant: g})
		} else {
			l.LetIn(nil, []uint32{uint32(id)})
			l.rules = append(l.rules, rule{kind: ruleGroup, id: uint32(id), grant: g})
		}
		return nil
	}
	switch {
	case len(token) > proto.MaxName:
		return fmt.Errorf("the token has %d bytes: at most %d", len(token), proto.MaxName)
	case proto.CheckName(token) != nil:
		return errors.New("the token is not UTF-8, or has a NUL in it")
	case l.hasToken(token):
		return errors.New("the token is there already")
	}
	l.AddToken(token, g)
	return nil
}

// hasToken says whether a token is in the list.
func (l *List) hasToken(token string) bool {
	d := DigestOf(token)
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.kind == ruleToken && r.token == d })
}

// parseGrant reads the namespaces and rights of a line.
func parseGrant(namespaces string, rights []string) (*Grant, error) {
	g := &Grant{}
	if namespaces == "*" {
		g.All = true
	} else {
		for name := range strings.SplitSeq(namespaces, ",") {
			switch name {
			case `""`:
				name = ""
			case "":
				return nil, errors.New(`a namespace has no name: write "" for the one without`)
			case "*":
				return nil, errors.New("* stands alone: it means all namespaces")
			}
			if len(name) > proto.MaxName || proto.CheckName(name) != nil {
				return nil, fmt.Errorf("the namespace %q: give UTF-8 without NUL, at most %d bytes", name, proto.MaxName)
			}
			g.Namespaces = append(g.Namespaces, name)
		}
		slices.Sort(g.Namespaces)
		g.Namespaces = slices.Compact(g.Namespaces)
	}
	for _, word := range rights {
		for right := range strings.SplitSeq(word, ",") {
			switch right {
			case "shm":
				g.Shared = true
			case "admin":
				g.Admin = true
			default:
				return nil, fmt.Errorf("%q is no right: shm and admin are", right)
			}
		}
	}
	return g, nil
}
