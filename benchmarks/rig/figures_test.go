package rig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFigureIsTheMedianOfTheRoundsRatios(t *testing.T) {
	s := spec{name: "f", unit: "us", reference: "r", target: "<= 1", cells: []string{"a", "b"}, of: p50}
	of := func(values ...float64) *outcome {
		o := new(outcome)
		for _, v := range values {
			o.samples = append(o.samples, Sample{P50: v})
		}
		return o
	}
	f := s.figure(map[string]*outcome{"a": of(1, 8, 3), "b": of(2, 2, 3)})
	require.Equal(t, 3, f.Runs)
	require.InDelta(t, 3, *f.Value, 0)
	require.InDelta(t, 2, *f.ReferenceValue, 0)
	require.InDelta(t, 1, *f.Ratio, 0, "0.5, 4, 1: not the ratio of the medians")
	require.InDelta(t, 0.5, *f.Min, 0)
	require.InDelta(t, 4, *f.Max, 0)

	f = s.figure(map[string]*outcome{"a": of(1), "b": {why: "skipped: absent"}})
	require.Nil(t, f.Value)
	require.Equal(t, "skipped: absent", f.Why)
}

func TestEveryFigureHasItsCellsAndATarget(t *testing.T) {
	r := new(Rig)
	known := make(map[string]bool)
	for _, c := range r.FigureCells(nil) {
		known[c.Name] = true
	}
	for _, s := range r.specs() {
		require.NotEmpty(t, s.cells, s.name)
		for _, name := range s.cells {
			require.True(t, known[name], "%s needs %s", s.name, name)
		}
		f := s.figure(nil)
		f.Value = new(1.0)
		require.NotPanics(t, func() { f.Meets() })
	}
	require.Len(t, FigureNames(), 30)
}
