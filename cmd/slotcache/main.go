// Command slotcache asks a running server how it does, puts single values into the
// cache, reads them and removes them, and looks into the files of a disk store.
//
// It ends with 0, with 1 when something failed, with 2 when the command line is wrong, and
// with 3 when the key is not cached. Errors say what failed, on what, and what to do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

const name = "slotcache"

const description = `Looks at a slotcached server and puts, gets and removes single values.

A KEY is any text; its SHA-256 names the value. FILE is a path, or - for the standard streams.
Exit codes: 0 done, 1 failed, 2 wrong command line, 3 not cached.`

// command is the command line.
type command struct {
	Addr      string        `help:"Address of the server. Default: unix:${socket}" env:"SLOTCACHE_ADDR" placeholder:"ADDR"`
	Token     string        `help:"Word the server asks for. Others may see it on the command line: better give a file. Default: $$SLOTCACHE_TOKEN." placeholder:"WORD"`
	TokenFile string        `name:"token-file" help:"File with that word. Default: $$SLOTCACHE_TOKEN_FILE." placeholder:"FILE"`
	Namespace string        `help:"Namespace of the keys. Default: the one without a name." placeholder:"NAME"`
	Timeout   time.Duration `help:"How long a command that asks a server may take." default:"30s"`

	Ping      pingCommand      `cmd:"" help:"Ask whether the server lives."`
	Stats     statsCommand     `cmd:"" help:"Print the server's counters."`
	Put       putCommand       `cmd:"" help:"Store a file's content."`
	Get       getCommand       `cmd:"" help:"Write a stored value to a file."`
	Rm        rmCommand        `cmd:"" help:"Remove values."`
	Pin       pinCommand       `cmd:"" help:"Keep values in memory for a time."`
	Unpin     unpinCommand     `cmd:"" help:"Let pinned values go again, whoever pinned them."`
	Clear     clearCommand     `cmd:"" help:"Remove every value of the namespace, whoever stored it."`
	Instances instancesCommand `cmd:"" help:"List the registered workers and what they hold, or end one."`
	Transfers transfersCommand `cmd:"" help:"List the open stores, retrieves and leases."`
	L2        l2Command        `cmd:"" name:"l2" help:"Look into the files of a disk store."`
	Version   versionCommand   `cmd:"" help:"Print the versions of this command and of the server."`

	Print kong.VersionFlag `name:"version" help:"Print the version of this command and end."`
}

// A session is what every subcommand needs.
type session struct {
	*command
	ctx   context.Context // ends after --timeout
	whole context.Context // ends with the command: for what takes as long as it takes
	out   io.Writer
}

func main() {
	var c command
	parsed := flags.Parse(name, &c, kong.Description(description), kong.Vars{"socket": flags.DefaultSocket()})
	ctx, cancel := signal.NotifyContext(context.Background(), flags.EndSignals()...)
	timed, stop := context.WithTimeout(ctx, c.Timeout)
	err := c.check(!strings.HasPrefix(parsed.Command(), "l2 "))
	if err == nil {
		err = parsed.Run(&session{command: &c, ctx: timed, whole: ctx, out: os.Stdout})
	}
	stop()
	cancel()
	flags.Exit(name, c.explain(err))
}

// check checks the flags, and takes the default address where none is given.
func (c *command) check(server bool) error {
	if c.Timeout <= 0 {
		return flags.Usagef("--timeout: %v is no time to answer in; give more than 0", c.Timeout)
	}
	if err := proto.CheckName(c.Namespace); err != nil {
		return flags.Usagef("--namespace: %w", err)
	}
	if err := c.checkToken(); err != nil {
		return err
	}
	if !server { // an offline command asks none
		return nil
	}
	if c.Addr == "" {
		addr, err := flags.DefaultAddr()
		c.Addr = addr
		return err
	}
	if err := flags.CheckAddr(c.Addr); err != nil {
		return flags.Usagef("--addr: %w", err)
	}
	return nil
}

// checkToken checks the token, and takes it from the environment where no flag gives it.
func (c *command) checkToken() error {
	if c.Token != "" && c.TokenFile != "" {
		return flags.Usagef("--token and --token-file: give one of them")
	}
	from := "--token-file"
	if c.Token == "" && c.TokenFile == "" {
		c.TokenFile, from = os.Getenv("SLOTCACHE_TOKEN_FILE"), "SLOTCACHE_TOKEN_FILE"
		if c.TokenFile == "" {
			c.Token = os.Getenv("SLOTCACHE_TOKEN")
		}
	}
	if c.TokenFile != "" {
		if _, err := os.Stat(c.TokenFile); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return flags.CheckToken(c.Token)
}

// explain adds to an error what can be done about it.
func (c *command) explain(err error) error {
	if err == nil {
		return nil
	}
	var refused *client.StatusError
	advice := ""
	switch {
	case errors.As(err, &refused):
		advice = c.statusAdvice(refused)
	case errors.Is(err, context.DeadlineExceeded):
		advice = fmt.Sprintf("no answer within %v from %s; give more with --timeout", c.Timeout, c.Addr)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		if _, ok := errors.AsType[*dialError](err); ok {
			advice = "no server there; start one with slotcached, or name another with --addr or SLOTCACHE_ADDR"
		}
	case errors.Is(err, syscall.EACCES):
		if _, ok := errors.AsType[*dialError](err); ok {
			advice = "this user may not open the socket; start slotcached with --socket-group or --socket-mode, and --allow-uid or --allow-gid"
		}
	case errors.Is(err, client.ErrDisconnected):
		advice = "the server went away; see its log, and try again"
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// statusAdvice says what to do about a refusal; nothing where the status says it all.
func (c *command) statusAdvice(refused *client.StatusError) string {
	//nolint:exhaustive // most statuses need no advice
	switch refused.Status {
	case proto.StatusDenied:
		if refused.Op == proto.OpHello && (c.Token != "" || c.TokenFile != "") {
			return "the token is not the server's, or this user may not connect (--allow-uid of slotcached)"
		}
		if refused.Op == proto.OpHello {
			return "the server asks for a token (give it with --token-file, --token or SLOTCACHE_TOKEN), or this user may not connect (--allow-uid of slotcached)"
		}
		if refused.Op == proto.OpEvict {
			return "the token or user has no admin right, or the server may not kill the process"
		}
		return fmt.Sprintf("the token is not for namespace %q; give another with --namespace", c.Namespace)
	case proto.StatusBadVersion:
		return "the server speaks another version of the protocol; use the slotcache that came with it"
	case proto.StatusUnsupported:
		if refused.Op == proto.OpPin {
			return "the server lets nothing be pinned; start it with a --pin-budget"
		}
	case proto.StatusNoSpace:
		if refused.Op == proto.OpPin {
			return "the budget for pins is spent; unpin something, or start the server with a larger --pin-budget"
		}
		return "memory is held or being written; try again, or start the server with a larger --l1-size"
	case proto.StatusTooLarge:
		if refused.Op == proto.OpPin {
			return "the value is larger than the whole budget for pins; start the server with a larger --pin-budget"
		}
		return "the value does not fit into the pool; start the server with a larger --l1-size"
	case proto.StatusBusy:
		return "somebody else is writing it, or a limit is reached; try again"
	case proto.StatusDraining:
		return "the server is stopping"
	}
	return ""
}

// A dialError is a server that could not be reached.
type dialError struct {
	addr string
	err  error
}

// Error names the address.
func (e *dialError) Error() string { return fmt.Sprintf("connect to %s: %v", e.addr, e.err) }

// Unwrap gives the reason.
func (e *dialError) Unwrap() error { return e.err }

func (s *session) options() client.Options {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return client.Options{Token: s.Token, TokenFile: s.TokenFile, Name: name, Logger: log}
}

// printf writes to standard output; not being able to is a failure of the command.
func (s *session) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, format, args...)
	return err
}

// dial connects for questions about the server.
func (s *session) dial() (*client.Conn, error) {
	c, err := client.Dial(s.ctx, s.Addr, s.options())
	if err != nil {
		return nil, &dialError{s.Addr, err}
	}
	return c, nil
}

// ask connects, asks and closes.
func (s *session) ask(question func(*client.Conn) error) error {
	c, err := s.dial()
	if err != nil {
		return err
	}
	return errors.Join(question(c), c.Close())
}
