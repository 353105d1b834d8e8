// Package flags holds what the commands share: sizes on the command line, the default
// socket, the version, and how a command starts and ends.
package flags

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/slotcache/slotcache/proto"
)

// The exit codes of every command. Only slotcache uses NotFound.
const (
	OK       = 0 // all of it was done
	Failure  = 1 // something failed while running; the message says what
	Usage    = 2 // the command line is wrong; nothing was done
	NotFound = 3 // the key is not cached
)

// ExitError is an error that chooses the exit code of the command it ends.
type ExitError struct {
	Code int
	Err  error
}

// Error is the text of the error inside.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap gives the error inside.
func (e *ExitError) Unwrap() error { return e.Err }

// Usagef makes an error that ends the command with the exit code Usage.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Code is the exit code an error stands for.
func Code(err error) int {
	if err == nil {
		return OK
	}
	var e *ExitError
	if errors.As(err, &e) {
		return e.Code
	}
	return Failure
}

// CheckToken says what is wrong with a token, without the token: it is a secret.
func CheckToken(token string) error {
	if len(token) > proto.MaxName {
		return Usagef("the token has %d bytes, at most %d", len(token), proto.MaxName)
	}
	if proto.CheckName(token) != nil {
		return Usagef("the token is not UTF-8, or contains a NUL")
	}
	return nil
}

// Parse reads the command line into cli, a pointer to a struct of kong fields. A wrong
// command line ends the process with Usage, asking for help or for the version ends it
// with OK.
func Parse(name string, cli any, options ...kong.Option) *kong.Context {
	options = append([]kong.Option{
		kong.Name(name),
		kong.Vars{"version": name + " " + Version()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
	}, options...)
	parser, err := kong.New(cli, options...)
	if err != nil {
		panic("flags: " + err.Error())
	}
	ctx, err := parser.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\nRun \"%s --help\" for the flags.\n", name, err, name+subcommand(err))
		os.Exit(Usage)
	}
	return ctx
}

// subcommand is the subcommand that was being read when the command line turned out to be wrong,
// with a blank before it.
func subcommand(err error) string {
	var wrong *kong.ParseError
	if !errors.As(err, &wrong) || wrong.Context == nil {
		return ""
	}
	if command := wrong.Context.Selected(); command != nil {
		return " " + command.Path()
	}
	return ""
}

// EndSignals are the signals that ask a command to end: also that its terminal has gone, unless it
// was started with that ignored, as nohup does.
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// Exit ends the process: silently when err is nil, else with its text and its code.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(Code(err))
}
