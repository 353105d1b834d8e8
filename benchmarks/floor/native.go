package floor

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed c/epoll.c
var source []byte

// BuildC compiles the epoll echo in C into dir and returns the program, which takes the path of
// its socket and says that it is ready on standard output. Without a compiler it is "".
func BuildC(dir string) (string, error) {
	compiler, err := exec.LookPath("gcc")
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("floor: %w", err)
	}
	program, text := filepath.Join(dir, "floor"), filepath.Join(dir, "floor.c")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return "", fmt.Errorf("floor: %w", err)
	}
	if out, err := exec.Command(compiler, "-O2", "-o", program, text).CombinedOutput(); err != nil {
		return "", fmt.Errorf("floor: compile: %w\n%s", err, out)
	}
	return program, nil
}
