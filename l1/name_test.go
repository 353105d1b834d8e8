package l1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesAreNormalizedOrRefused(t *testing.T) {
	long := strings.Repeat("n", nameLenMax-len(namePrefix))
	for _, c := range []struct{ in, want, why string }{
		{"x", "slotcache_l1_pool_x", ""},
		{"/x", "slotcache_l1_pool_x", ""},
		{"slotcache_l1_pool_x", "slotcache_l1_pool_x", ""},
		{"/slotcache_l1_pool_x", "slotcache_l1_pool_x", ""},
		{"slotcache_l1_poolx", "slotcache_l1_pool_slotcache_l1_poolx", ""},
		{"node-7.gpu_0", "slotcache_l1_pool_node-7.gpu_0", ""},
		{".", "slotcache_l1_pool_.", ""},
		{"ñ", "slotcache_l1_pool_ñ", ""},
		{long, namePrefix + long, ""},
		{long + "n", "", "longer"},
		{strings.Repeat("n", 4096), "", "longer"},
		{"", "", "empty"},
		{"/", "", "empty"},
		{namePrefix, "", "empty"},
		{"//x", "", "separator"},
		{"a/b", "", "separator"},
		{`a\b`, "", "separator"},
		{"x/", "", "separator"},
		{"../../etc/passwd", "", "separator"},
		{"/dev/sda", "", "separator"},
		{"..", "", `".."`},
		{"a..b", "", `".."`},
		{"a\x00b", "", "control"},
		{"a b", "", "space"},
		{"a\nb", "", "control"},
		{"a\xffb", "", "UTF-8"},
	} {
		got, err := NormalizeName(c.in)
		if c.why != "" {
			require.ErrorContains(t, err, c.why, "%q", c.in)
			require.Less(t, len(err.Error()), 400)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		again, err := NormalizeName(got)
		require.NoError(t, err)
		require.Equal(t, got, again, "it is idempotent")
	}
}

func FuzzNormalizeName(f *testing.F) {
	for _, s := range []string{"x", "/x", "../x", "a\x00", namePrefix + "x", "a\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := NormalizeName(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(name, namePrefix) || len(name) > nameLenMax || strings.ContainsAny(name, "/\x00") {
			t.Fatalf("%q becomes %q", s, name)
		}
		if again, err := NormalizeName(name); err != nil || again != name {
			t.Fatalf("%q becomes %q, %v", name, again, err)
		}
	})
}
