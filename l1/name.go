package l1

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// namePrefix marks the files that cleanup may remove.
	namePrefix = "slotcache_l1_pool_"
	// nameLenMax is what a frame can carry, in bytes.
	nameLenMax = 64
)

// NormalizeName returns the file name of a named pool: a leading slash is
// dropped and the prefix slotcache_l1_pool_ added where it is missing. A name
// that could mean another directory or does not fit is refused.
func NormalizeName(s string) (string, error) {
	name := strings.TrimPrefix(s, "/")
	if !strings.HasPrefix(name, namePrefix) {
		name = namePrefix + name
	}
	refuse := func(why string) (string, error) {
		if len(s) > nameLenMax {
			s = s[:nameLenMax] + "..."
		}
		return "", fmt.Errorf("l1: pool name %q: %s", s, why)
	}
	switch {
	case name == namePrefix:
		return refuse("empty")
	case len(name) > nameLenMax:
		return refuse(fmt.Sprintf("longer than %d bytes with its prefix", nameLenMax))
	case strings.ContainsAny(name, `/\`):
		return refuse("has a separator")
	case strings.Contains(name, ".."):
		return refuse(`has ".."`)
	case !utf8.ValidString(name):
		return refuse("not UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return refuse("has a space or control character")
	}
	return name, nil
}
