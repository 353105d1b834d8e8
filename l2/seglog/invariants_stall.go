package seglog

import "fmt"

// checkStalled demands that a stalled log keeps what an I/O in flight moves the bytes of, and nothing else.
func (l *Log) checkStalled() error {
	if l.health != healthStalled {
		return nil
	}
	if n := l.queue.n + l.work.n + l.copyWork.n + l.readWork.n; n > 0 {
		return fmt.Errorf("stalled: %d puts and reads wait for the disk", n)
	}
	for i := 1; i < len(l.fences.items); i++ {
		if f := &l.fences.items[i]; f.ack != 0 {
			return fmt.Errorf("stalled: fence %d (%v) is unanswered", i, f.state)
		}
	}
	for i := 1; i < len(l.puts.items); i++ {
		p := &l.puts.items[i]
		if p.state != putFree && p.state != putListed && p.state != putOvertaken && p.flying == 0 {
			return fmt.Errorf("stalled: put %d (%v) has no I/O in flight", i, p.state)
		}
	}
	for i := range l.control.n {
		if t := l.control.at(i); t.use == useHeader || t.use == usePack || t.use == useCopyWrite {
			return fmt.Errorf("stalled: task %d of %d waits for the disk", t.use, t.owner)
		}
	}
	return nil
}
