package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func collected(t *testing.T, lines ...string) ([]result, string) {
	t.Helper()
	var show strings.Builder
	results, err := collect(strings.NewReader(strings.Join(lines, "\n")+"\n"), &show)
	require.NoError(t, err)
	return results, show.String()
}

func TestTestsAreCountedOneByOne(t *testing.T) {
	results, show := collected(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}`,
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"loud\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"run","Package":"p","Test":"TestC"}`,
		`{"Action":"skip","Package":"p","Test":"TestC"}`,
		`{"Action":"fail","Package":"p","Elapsed":1}`,
	)
	require.Equal(t, []result{{"p.TestA", passed}, {"p.TestB", failed}, {"p.TestC", skipped}}, results)
	require.Contains(t, show, "loud")
	require.NotContains(t, show, "quiet")
}

func TestAPackageThatDoesNotBuildIsAFailure(t *testing.T) {
	results, show := collected(t,
		`{"ImportPath":"p","Action":"build-output","Output":"syntax error\n"}`,
		`{"ImportPath":"p","Action":"build-fail"}`,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
	)
	require.Equal(t, []result{{"p", failed}}, results)
	require.Contains(t, show, "syntax error")
}

func TestATestThatNeverEndsIsAFailure(t *testing.T) {
	results, _ := collected(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: x\n"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	require.Equal(t, []result{{"p.TestA", failed}}, results)

	results, _ = collected(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN\n"}`,
	)
	require.Equal(t, []result{{"p.TestA", failed}}, results)
}

func TestPackagesWithoutTestsCountNothing(t *testing.T) {
	results, show := collected(t, `plain words`, `{"Action":"skip","Package":"p"}`)
	require.Empty(t, results)
	require.Contains(t, show, "plain words")
}

func TestTheSumIsThatOfAllSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	require.NoError(t, record(path, []result{{"a", passed}, {"b", passed}}))
	require.NoError(t, record(path, []result{{"c", skipped}}))
	results, err := load(path)
	require.NoError(t, err)
	var out strings.Builder
	require.True(t, sum(results, &out))
	require.True(t, strings.HasSuffix(out.String(), "\n2 passed, 0 failed\n"), out.String())

	require.NoError(t, record(path, []result{{"d", failed}}))
	results, err = load(path)
	require.NoError(t, err)
	out.Reset()
	require.False(t, sum(results, &out))
	require.True(t, strings.HasSuffix(out.String(), "failed: d\n2 passed, 1 failed\n"), out.String())
}

func TestNothingIsNotASuccess(t *testing.T) {
	require.False(t, sum(nil, os.Stderr))
	require.False(t, sum([]result{{"a", skipped}}, os.Stderr))
}

func TestACommandThatFailsWithoutAWordIsAFailure(t *testing.T) {
	results, err := runTests([]string{"sh", "-c", "exit 3"}, os.Stderr)
	require.NoError(t, err)
	require.Equal(t, []result{{"sh -c exit 3", failed}}, results)
}
