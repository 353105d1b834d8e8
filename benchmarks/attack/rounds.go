package attack

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/benchmarks/observe"
)

// The phases come in turn, round after round, as a machine's own delays change from minute to minute: idle, control,
// attack, idle, control, attack, idle. Each attack stands between the idle phases that it is compared with.
const (
	phaseIdle = iota
	phaseControl
	phaseAttack
	phaseCount
)

var phaseNames = [phaseCount]string{"idle", "control", "attack"}

// shortest is how long a phase is at least.
const shortest = 200 * time.Millisecond

// times are how long the honest client's calls took, by step.
type times [stepCount]*hdrhistogram.Histogram

// newTimes are none.
func newTimes() (t times) {
	for i := range t {
		t[i] = hdrhistogram.New(1, honestLongest, 3)
	}
	return t
}

// merge adds other times.
func (t *times) merge(from *times) {
	for i := range t {
		t[i].Merge(from[i])
	}
}

// slower is how many times longer a step took than in other times, by the p99.
func (t *times) slower(step int, than *times) float64 {
	return float64(t[step].ValueAtQuantile(99)) / float64(max(than[step].ValueAtQuantile(99), 1))
}

// A seen is what the honest client saw in one round of a phase.
type seen struct {
	Phase
	Encoded [stepCount][]byte `json:"times"` // by the histograms' own encoding

	times   times
	stolen  time.Duration
	elapsed time.Duration
}

// encode puts the times into what is sent.
func (s *seen) encode() (err error) {
	for i, h := range s.times {
		if s.Encoded[i], err = h.Encode(hdrhistogram.V2CompressedEncodingCookieBase); err != nil {
			return fmt.Errorf("attack: %w", err)
		}
	}
	return nil
}

// decode is the way back.
func (s *seen) decode() (err error) {
	for i, text := range s.Encoded {
		if s.times[i], err = hdrhistogram.Decode(text); err != nil {
			return fmt.Errorf("attack: times of %s: %w", stepNames[i], err)
		}
	}
	return nil
}

// rounds lets the phases come in turn.
func (s *siege) rounds(ctx context.Context) error {
	n := time.Duration(s.opts.Rounds)
	lengths := [phaseCount]time.Duration{s.opts.Time / (n + 1), s.opts.Time / n / 2, s.opts.Time / n}
	for i := range phaseCount*s.opts.Rounds + 1 {
		phase := i % phaseCount
		if err := s.phase(ctx, phase, max(lengths[phase], shortest)); err != nil {
			return fmt.Errorf("%s: %w", phaseNames[phase], err)
		}
	}
	return nil
}

// observed has the honest client work, and notes what was stolen meanwhile.
func (s *siege) observed(ctx context.Context, phase string, d time.Duration) (p seen, err error) {
	before, err := observe.Stolen(s.seats.all())
	if err != nil {
		return p, err
	}
	began := time.Now()
	if p, err = s.honest(ctx, phase, d); err != nil {
		return p, err
	}
	p.elapsed = time.Since(began)
	after, err := observe.Stolen(s.seats.all())
	p.stolen = after - before
	return p, err
}

// judge puts the rounds of each phase together, and compares the phases.
func (s *siege) judge() {
	var all [phaseCount]times
	for phase, rounds := range s.seen {
		all[phase] = newTimes()
		sum := Phase{Phase: phaseNames[phase], Rounds: len(rounds), Realtime: true}
		var stolen, elapsed time.Duration
		for i := range rounds {
			p := &rounds[i]
			all[phase].merge(&p.times)
			sum.add(&p.Phase)
			stolen += p.stolen
			elapsed += p.elapsed
			sum.StolenMost = max(sum.StolenMost, s.share(p.stolen, p.elapsed))
		}
		sum.Stolen = s.share(stolen, elapsed)
		s.report.Phases = append(s.report.Phases, sum)
	}
	for phase := range s.report.Phases {
		p := &s.report.Phases[phase]
		for step := range stepCount {
			now := stepOf(step, all[phase][step])
			now.Slower, now.Caused = all[phase].slower(step, &all[phaseIdle]), all[phase].slower(step, &all[phaseControl])
			now.SlowerRounds = s.slowerRounds(phase, step)
			p.Steps = append(p.Steps, now)
			if phase == phaseAttack {
				s.report.Slower = max(s.report.Slower, now.Slower)
				s.report.Caused = max(s.report.Caused, now.Caused)
			}
		}
	}
}

// slowerRounds is how many times longer a step took in each round of a phase than in the idle phases before and after it.
func (s *siege) slowerRounds(phase, step int) (each []float64) {
	if phase == phaseIdle {
		return nil
	}
	for i := range s.seen[phase] {
		beside := newTimes()
		beside.merge(&s.seen[phaseIdle][i].times)
		beside.merge(&s.seen[phaseIdle][i+1].times)
		each = append(each, s.seen[phase][i].times.slower(step, &beside))
	}
	return each
}

// share is what part of the time of all CPUs something took, in percent.
func (s *siege) share(part, elapsed time.Duration) float64 {
	return 100 * part.Seconds() / max(elapsed.Seconds()*float64(len(s.seats.all())), 1e-9)
}

// add adds what was seen in a round.
func (p *Phase) add(round *Phase) {
	p.Seconds += round.Seconds
	p.Missed += round.Missed
	p.Checked += round.Checked
	p.Errors += round.Errors
	p.Realtime = p.Realtime && round.Realtime
	if p.Example == "" {
		p.Example = round.Example
	}
}

// stepOf says how long the calls of a step took.
func stepOf(step int, h *hdrhistogram.Histogram) Step {
	return Step{
		Step: stepNames[step], Calls: h.TotalCount(), P50: float64(h.ValueAtQuantile(50)), P99: float64(h.ValueAtQuantile(99)), Max: float64(h.Max()),
	}
}
