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

// A puppet is an actor process seen from the one that gives the orders. It is for one
// goroutine.
type puppet struct {
	name    string
	p       *process
	orders  *os.File
	answers chan Answer // closed when the process has ended
}

// startPuppet starts an actor and waits until it is registered. Exe is slotbench.
func startPuppet(ctx context.Context, exe, addr, name string, block int) (*puppet, error) {
	cmd := exec.Command(exe, "actor", "--addr", addr, "--name", name, "--block-size", strconv.Itoa(block))
	cmd.Stderr = os.Stderr
	var files []*os.File
	defer func() {
		for _, f := range files { // the child's ends
			_ = f.Close()
		}
	}()
	childIn, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("worker %s: %w", name, err)
	}
	files = append(files, childIn)
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("worker %s: %w", name, err), orders.Close())
	}
	files = append(files, childOut)
	cmd.Stdin, cmd.Stdout = childIn, childOut
	p, err := startProcess(cmd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("worker %s: %w", name, err), orders.Close(), out.Close())
	}
	a := &puppet{name: name, p: p, orders: orders, answers: make(chan Answer)}
	go a.listen(out)
	if _, err := a.answer(ctx); err != nil {
		a.kill()
		return nil, err
	}
	return a, nil
}

// listen hands the answers on until the process' output ends.
func (a *puppet) listen(out *os.File) {
	defer close(a.answers)
	defer out.Close() //nolint:errcheck // only read
	for d := json.NewDecoder(out); ; {
		var answer Answer
		if d.Decode(&answer) != nil {
			return
		}
		select {
		case a.answers <- answer:
		case <-a.p.done:
			return
		}
	}
}

// answer waits for the next answer. One that holds an error is that error, and a wrong
// byte is one too.
func (a *puppet) answer(ctx context.Context) (Answer, error) {
	select {
	case answer, ok := <-a.answers:
		switch {
		case !ok:
			<-a.p.done
			return answer, fmt.Errorf("worker %s ended: %v", a.name, a.p.cmd.ProcessState)
		case answer.Error != "":
			return answer, fmt.Errorf("worker %s: %s", a.name, answer.Error)
		case answer.Wrong > 0:
			return answer, fmt.Errorf("worker %s read %d wrong bytes", a.name, answer.Wrong)
		}
		return answer, nil
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// ask gives an order and waits for its answer.
func (a *puppet) ask(ctx context.Context, order Order) (Answer, error) {
	if err := json.NewEncoder(a.orders).Encode(&order); err != nil {
		return Answer{}, fmt.Errorf("worker %s: %w", a.name, err)
	}
	answer, err := a.answer(ctx)
	if err != nil {
		return answer, fmt.Errorf("%s of blocks %d-%d: %w", order.Do, order.First, order.First+uint64(order.Count)-1, err)
	}
	return answer, nil
}

// kill ends the worker without a word.
func (a *puppet) kill() {
	a.p.kill()
	_ = a.orders.Close()
}

// dismiss ends the worker by the end of its orders and gives its exit.
func (a *puppet) dismiss(ctx context.Context) error {
	if err := a.orders.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := a.p.wait(ctx); err != nil {
		return fmt.Errorf("worker %s: %w", a.name, err)
	}
	return nil
}
