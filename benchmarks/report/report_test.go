package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks/report"
)

func TestATargetIsOfTheRatioOrElseOfTheValue(t *testing.T) {
	for _, c := range []struct {
		value, ratio *float64
		target       string
		want         bool
	}{
		{new(30.0), new(1.3), "<= 1.3", true},
		{new(1.0), new(1.31), "<= 1.3", false},
		{new(1.0), new(2.0), ">= 2", true},
		{new(9.0), new(1.99), ">= 2", false},
		{new(0.3), nil, "<= 0.3", true},
		{new(0.31), nil, "<= 0.3", false},
		{nil, nil, "<= 0.3", false},
	} {
		f := report.Figure{Value: c.value, Ratio: c.ratio, Target: c.target}
		require.Equal(t, c.want, f.Meets(), "%+v", c)
	}
	require.Panics(t, func() { (&report.Figure{Value: new(1.0), Target: "fast"}).Meets() })
}

// example is a run with one figure of each sort.
func example() *report.Run {
	times := hdrhistogram.New(1, 1e9, 3)
	for i := range 10_000 {
		_ = times.RecordValue(int64(20_000 + i)) // it is in the range
	}
	ping := "PING"
	run := &report.Run{
		Command: "slotbench report", Lines: []string{"a machine"},
		Figures: []report.Figure{
			{Figure: "quick", Value: new(20.0), Unit: "us", Reference: &ping, ReferenceValue: new(40.0), Ratio: new(0.5), Target: "<= 1.3", Runs: 3, Min: new(0.4), Max: new(0.6)},
			{Figure: "plain", Value: new(0.5), Unit: "1/request", Target: "<= 0.3", Runs: 1, Min: new(0.5), Max: new(0.5)},
			{Figure: "missing", Unit: "us", Target: "<= 2", Why: "skipped: <no> disk"},
		},
		Measurements: []report.Measurement{
			{Name: "ping 1", Group: "rpc", Conns: 1, P50: 20, Times: times},
			{Name: "redis", Why: "skipped: absent"},
		},
	}
	for _, size := range []int64{4 << 10, 1 << 20, 32 << 20} {
		run.Measurements = append(run.Measurements, report.Measurement{Name: "set", Group: "data", Series: "set", Size: size, Bytes: 3})
	}
	return run
}

func TestFiguresAreObjectsWithNullsWhereNothingIsKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	require.NoError(t, example().WriteFigures(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"figure":"quick","value":20,"unit":"us","reference":"PING","reference_value":40,"ratio":0.5,"target":"<= 1.3","runs":3,"min":0.4,"max":0.6}`, lines[0])
	require.JSONEq(t, `{"figure":"plain","value":0.5,"unit":"1/request","reference":null,"reference_value":null,"ratio":null,"target":"<= 0.3","runs":1,"min":0.5,"max":0.5}`, lines[1])
	require.JSONEq(t, `{"figure":"missing","value":null,"unit":"us","reference":null,"reference_value":null,"ratio":null,"target":"<= 2","runs":0,"min":null,"max":null,"why":"skipped: <no> disk"}`, lines[2])
}

func TestTheTableSaysWhatWasReachedMissedAndNotMeasured(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, example().WriteFigureTable(&b))
	lines := strings.Split(b.String(), "\n")
	require.Contains(t, lines[1], "reached")
	require.Contains(t, lines[2], "missed")
	require.Contains(t, lines[3], "not measured: skipped: <no> disk")
	b.Reset()
	require.NoError(t, example().WriteMeasurements(&b))
	require.Contains(t, b.String(), "skipped: absent")
	b.Reset()
	require.NoError(t, example().WriteJSON(&b))
	require.True(t, json.Valid(b.Bytes()))
}

func TestThePageHasItsDiagramsAndNoForeignMarkup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, example().WriteHTML(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(string(text), "<svg"), "ratios, bars of us, latencies, throughput")
	require.Contains(t, string(text), "&lt;no&gt; disk")
	require.NotContains(t, string(text), "<?xml")
}

func TestAFailedMeasurementIsAnError(t *testing.T) {
	r := example()
	require.NoError(t, r.Err())
	r.Failed = 2
	require.ErrorContains(t, r.Err(), "2 measurements")
}
