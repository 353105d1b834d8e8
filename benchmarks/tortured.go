package benchmarks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// pauseTime is how long a worker may take to end the step it is at.
const pauseTime = 60 * time.Second

// A tortured is a torturer process seen from its parent, whose journal follows what it
// says. Between ready or paused and the next order, and after the end, the journal is the
// parent's.
type tortured struct {
	j       *journal
	p       *process
	orders  *os.File
	signals chan string   // ready and paused
	end     chan struct{} // closed when all that it said is in the journal
	failure string        // the last it said; read after end
}

// startTortured starts a torturer and waits until it is registered. A worker whose server
// is killed meanwhile is no error: it has ended then.
func startTortured(ctx context.Context, exe string, j *journal, o *TorturerOptions) (*tortured, error) {
	cmd := exec.Command(exe, "torturer", "--addr", o.Addr, "--worker", strconv.Itoa(o.Worker), "--keys", strconv.Itoa(o.Keys),
		"--largest", strconv.Itoa(o.Largest), "--seed", strconv.FormatUint(o.Seed, 10), "--first-version", strconv.FormatUint(o.Version, 10))
	childIn, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("torturer: %w", err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torturer: %w", err), orders.Close(), childIn.Close())
	}
	cmd.Stdin, cmd.Stdout = childIn, childOut
	p, err := startProcess(cmd)
	_, _ = childIn.Close(), childOut.Close() // the child's ends
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torturer: %w", err), orders.Close(), out.Close())
	}
	t := &tortured{j: j, p: p, orders: orders, signals: make(chan string, 4), end: make(chan struct{})}
	go t.listen(out)
	return t, t.await(ctx, SayReady)
}

// listen follows what the worker says until its output ends.
func (t *tortured) listen(out *os.File) {
	defer close(t.end)
	defer out.Close() //nolint:errcheck // only read
	for d := json.NewDecoder(out); ; {
		s := &Saying{}
		if d.Decode(s) != nil {
			return
		}
		if s.Error != "" {
			t.failure = s.Error
		}
		if s.Say == SayReady || s.Say == SayPaused {
			t.signals <- s.Say
			continue
		}
		t.j.hear(s)
	}
}

// await waits for the worker to say so, or to end.
func (t *tortured) await(ctx context.Context, say string) error {
	timer := time.NewTimer(pauseTime)
	defer timer.Stop()
	for {
		select {
		case got := <-t.signals:
			if got == say {
				return nil
			}
		case <-t.end:
			return nil
		case <-timer.C:
			return fmt.Errorf("worker %d is not %s after %v", t.j.worker, say, pauseTime)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell gives an order. A worker that has ended does not hear it.
func (t *tortured) tell(word string) { _, _ = t.orders.WriteString(word + "\n") }

// ended reports whether the worker has ended, which it does when the server goes.
func (t *tortured) ended() bool {
	select {
	case <-t.end:
		return true
	default:
		return false
	}
}

// kill ends the worker; all that it said is in the journal then.
func (t *tortured) kill() {
	t.p.kill()
	_ = t.orders.Close()
	<-t.end
	t.j.open = nil
}
