// Command testcount runs the steps of the test suite and counts what they report, so that
// the suite can go on after a failure and still end with one true line.
//
// "run" starts a command and records its results in a file: the tests of a "go test -json"
// one by one, any other command as one check. "sum" prints what was recorded and ends with
// 1 if anything failed, or if nothing was recorded at all.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/slotcache/slotcache/cmd/flags"
)

type command struct {
	Run runCommand `cmd:"" help:"Run a step and record its results."`
	Sum sumCommand `cmd:"" help:"Print what was recorded."`
}

type runCommand struct {
	Results string   `help:"File the results are added to." required:"" placeholder:"FILE"`
	Check   string   `help:"Name of the one check the command is; without it, its output is read as go test -json." placeholder:"NAME"`
	Command []string `arg:"" passthrough:"" help:"The command after --."`
}

type sumCommand struct {
	Results string `help:"File the results are in." required:"" placeholder:"FILE"`
}

func main() {
	var c command
	ctx := flags.Parse("testcount", &c)
	flags.Exit("testcount", ctx.Run())
}

// Run starts the step. It succeeds when the step could be recorded, passed or not: it is
// the sum that fails.
func (c *runCommand) Run() error {
	args := c.Command
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return flags.Usagef("no command to run")
	}
	if c.Check != "" {
		fmt.Printf("== %s\n", c.Check)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return record(c.Results, []result{{Name: c.Check, Outcome: outcomeOf(cmd.Run())}})
	}
	fmt.Printf("== %s\n", strings.Join(args, " "))
	results, err := runTests(args, os.Stdout)
	if err != nil {
		return err
	}
	return record(c.Results, results)
}

// outcomeOf tells what a command's end stands for, and says why it did not pass.
func outcomeOf(err error) outcome {
	if err == nil {
		return passed
	}
	fmt.Printf("FAILED: %v\n", err)
	return failed
}

// runTests runs a "go test -json" and collects its results. A command that fails without
// having reported a failure is one.
func runTests(args []string, show io.Writer) ([]result, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, readErr := collect(out, show)
	runErr := cmd.Wait()
	if runErr != nil && !anyFailed(results) {
		_, _ = fmt.Fprintf(show, "FAILED: %v\n", runErr)
		results = append(results, result{Name: strings.Join(args, " "), Outcome: failed})
	}
	return results, readErr
}

// Run prints the sum.
func (c *sumCommand) Run() error {
	results, err := load(c.Results)
	if err != nil {
		return err
	}
	if !sum(results, os.Stdout) {
		return errors.New("the suite failed")
	}
	return nil
}
