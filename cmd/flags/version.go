package flags

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker (-X); empty in a plain go build.
var release string

// Version names the release, or the module version the binary was built from, and the
// Go it was built with.
func Version() string {
	v := release
	if v == "" {
		v = "devel"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
