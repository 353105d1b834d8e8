package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// progressSteps bounds the events and I/Os after which every request that is under way has
// its answer, with 4 clients on a pool of 64 slots.
const progressSteps = 2000

// Four clients do what they like on a pool of 64 slots, the disk fails at times and some of
// them die. Whenever the faults stop every request is answered in a bounded number of
// steps, in which no time passes: none waits for another client, nor for its own deadline.
func TestEveryRequestIsAnsweredOnceFaultsStop(t *testing.T) {
	all, ran := 0, 0
	for i, s := range modelConfigs() {
		seed := uint64(fromEnv("MODEL_SEED", int(time.Now().UnixNano())))
		t.Run(fmt.Sprintf("config %d", i), func(t *testing.T) {
			t.Logf("seed %d", seed)
			m := &model{setup: s, r: rand.New(rand.NewPCG(seed, 2)), pidNext: 1000, verdict: map[proto.Op]int{}, wide: true}
			m.begin(t, nil)
			m.workers = m.workers[:4]
			m.growWhole()
			most, waited := 0, 0
			for range 10 {
				m.faults, m.faulty = true, true
				for range 100 {
					if m.r.IntN(6) == 0 {
						m.act() // the disk is slow
					} else {
						m.actOf(m.r.IntN(len(m.workers)))
					}
					m.collect()
				}
				m.faults = false
				waited += m.asked()
				most = max(most, m.answerAll())
			}
			t.Logf("%d requests were under way in all, the most took %d steps", waited, most)
			all += waited
			ran++
			m.finish()
		})
	}
	if len(modelConfigs()) == ran {
		require.Greater(t, all, 40, "hardly anything was under way")
	}
}

// asked is how many requests have no reply.
func (m *model) asked() (n int) {
	for _, w := range slices.Concat(m.workers, m.zombies) {
		if w != nil {
			n += len(w.pending)
		}
	}
	return n
}

// answerAll carries out work under way, in any order, until every request has its reply,
// and returns in how many steps.
func (m *model) answerAll() int {
	m.t.Helper()
	for n := 0; ; n++ {
		m.collect()
		if m.asked() == 0 {
			return n
		}
		require.Less(m.t, n, progressSteps, "%d requests have no answer", m.asked())
		switch {
		case len(m.events) > 0 && (len(m.ios) == 0 || m.r.IntN(2) == 0):
			m.event(m.r.IntN(len(m.events)))
		case len(m.ios) > 0:
			m.endIO(m.r.IntN(len(m.ios)))
		default:
			require.True(m.t, m.steps > 0 || m.tickDue(), "%d requests wait and nothing is under way", m.asked())
			m.flush()
		}
	}
}
