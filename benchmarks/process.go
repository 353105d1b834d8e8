package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a child that dies with us: in a process group of its own, so that a Ctrl-C
// reaches only the parent, and killed by the kernel when the parent ends without a word.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been waited for
	err  error         // of the wait; set before done is closed
}

// startProcess starts cmd, whose standard streams must be files or nil.
func startProcess(cmd *exec.Cmd) (*process, error) { return startPinned(cmd, nil) }

// startPinned is startProcess on some CPUs only; on those of this process if there are none.
func startPinned(cmd *exec.Cmd, cpus []int) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child to the thread that made it, so the thread must live
		// as long as the child does.
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		err := pin(cpus)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// pin keeps this thread, and the children it makes, on some CPUs.
func pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPUs %v: %w", cpus, err)
	}
	return nil
}

// CPUs are those that this process may run on, in their order.
func CPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		panic("benchmarks: no affinity: " + err.Error())
	}
	var cpus []int
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// A Child is a process that dies with this one.
type Child struct{ p *process }

// StartChild starts cmd, whose standard streams must be files or nil, on some CPUs only; on
// those of this process if there are none.
func StartChild(cmd *exec.Cmd, cpus []int) (*Child, error) {
	p, err := startPinned(cmd, cpus)
	if err != nil {
		return nil, err
	}
	return &Child{p}, nil
}

// PID is its number.
func (c *Child) PID() int { return c.p.pid() }

// Kill kills it, if it lives, and waits for its end.
func (c *Child) Kill() { c.p.kill() }

// Done is closed at its end.
func (c *Child) Done() <-chan struct{} { return c.p.done }

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process as the kernel would in need of memory, and waits for its end.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic("benchmarks: cannot kill a child: " + err.Error())
	}
	<-p.done
}

// stop sends SIGTERM and waits; after the time given it kills. The error is the child's
// own: nil when it ended with exit code 0.
func (p *process) stop(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", p.pid(), err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		p.kill()
		return fmt.Errorf("process %d had not ended %v after SIGTERM and was killed", p.pid(), limit)
	}
}

// wait gives the process' own error once it has ended.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cpu is the processor time the process has used, living or dead.
func (p *process) cpu() time.Duration {
	select {
	case <-p.done:
		state := p.cmd.ProcessState
		return state.UserTime() + state.SystemTime()
	default:
	}
	used, err := CPUTime(p.pid())
	if err != nil {
		<-p.done // it ended meanwhile
		return p.cpu()
	}
	return used
}

// Err is how it ended: nil with exit code 0. It is known when Done is closed.
func (c *Child) Err() error {
	<-c.p.done
	return c.p.err
}
