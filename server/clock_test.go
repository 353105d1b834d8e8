package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The wall clock jumps: nobody reads it. Times are what time.Since says of a time.Now of this
// process, which is monotonic, and what the kernel's timers count, which are, too. The engine
// and what is beside it read no clock at all; the linter sees to that.
func TestNoClockIsReadThatCanJump(t *testing.T) {
	wall := []string{ // methods of time.Time, and constructors, that tell of the wall clock
		"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Round", "UTC", "Local", "In", "Format", "AppendFormat", "Date", "Clock",
	}
	kernel := []string{"CLOCK_REALTIME", "IORING_TIMEOUT_REALTIME", "CLOCK_REALTIME_COARSE", "CLOCK_TAI", "Gettimeofday", "Time"}
	files := 0
	for _, dir := range []string{".", "../ring", "../l1", "../l2", "../proto"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					n = call.Fun
					if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(wall, s.Sel.Name) && !isOf(s, "math") {
						t.Errorf("%s reads the wall clock: %s", path, s.Sel.Name)
					}
				}
				if s, ok := n.(*ast.SelectorExpr); ok && isOf(s, "unix") {
					require.NotContains(t, kernel, s.Sel.Name, path)
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, files, 50, "the sources are not there")
}

// isOf says whether a selector is of a package.
func isOf(s *ast.SelectorExpr, name string) bool {
	from, ok := s.X.(*ast.Ident)
	return ok && from.Name == name
}
