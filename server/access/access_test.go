package access

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const file = `
# a comment
tenant-a	llama,mistral	shm
tenant-b   ""
operator * shm,admin
watcher  * admin
  uid:1000 llama shm
gid:55   mistral
`

func read(t *testing.T) *List {
	t.Helper()
	l := New(7)
	require.NoError(t, l.Read([]byte(file)))
	return l
}

func TestWhoComesInAndWhatFor(t *testing.T) {
	withFile := read(t)
	withToken := New(7)
	withToken.AddToken("word", Everything)
	withToken.LetIn([]uint32{8}, nil)
	open := New(7)
	open.LetIn([]uint32{8}, []uint32{55})
	user := func(uid uint32, groups ...uint32) Peer { return Peer{Local: true, UID: uid, Groups: groups} }
	for _, c := range []struct {
		name    string
		list    *List
		peer    Peer
		token   string
		verdict Verdict
		grant   *Grant
	}{
		{"the server's user", open, user(7), "", Granted, Everything},
		{"the server's user with a token nobody asks for", open, user(7), "x", Granted, Everything},
		{"another user", open, user(9), "", Stranger, nil},
		{"root is another user", open, user(0), "", Stranger, nil},
		{"a user that is let in", open, user(8), "", Granted, &Grant{All: true, Shared: true}},
		{"a user whose group is let in", open, user(9, 4, 55), "", Granted, &Grant{All: true, Shared: true}},
		{"TCP", open, Peer{}, "", Granted, &Grant{All: true}},

		{"no token where one is asked for", withToken, user(7), "", NoToken, nil},
		{"a wrong token", withToken, user(7), "wrong", WrongToken, nil},
		{"the token", withToken, user(7), "word", Granted, Everything},
		{"the token with a NUL more", withToken, user(7), "word\x00", WrongToken, nil},
		{"a stranger with the token", withToken, user(9), "word", Stranger, nil},
		{"a guest without the token", withToken, user(8), "", NoToken, nil},
		{"TCP with the token", withToken, Peer{}, "word", Granted, Everything},
		{"TCP without it", withToken, Peer{}, "", NoToken, nil},

		{"a tenant", withFile, user(7), "tenant-a", Granted, &Grant{Namespaces: []string{"llama", "mistral"}, Shared: true}},
		{"a tenant over TCP", withFile, Peer{}, "tenant-a", Granted, &Grant{Namespaces: []string{"llama", "mistral"}, Shared: true}},
		{"the nameless namespace", withFile, user(7), "tenant-b", Granted, &Grant{Namespaces: []string{""}}},
		{"an operator", withFile, user(7), "operator", Granted, Everything},
		{"the server's user, in no line", withFile, user(7), "", NoToken, nil},
		{"a user of the file", withFile, user(1000), "", Granted, &Grant{Namespaces: []string{"llama"}, Shared: true}},
		{"a user of the file with a token", withFile, user(1000), "operator", Granted, Everything},
		{"a user of the file with a wrong one", withFile, user(1000), "tenant-c", WrongToken, nil},
		{"a group of the file", withFile, user(3, 55), "", Granted, &Grant{Namespaces: []string{"mistral"}}},
		{"a stranger to the file", withFile, user(3, 54), "operator", Stranger, nil},
		{"uid 0 over TCP is nobody", withFile, Peer{UID: 1000}, "", NoToken, nil},
	} {
		g, v := c.list.Find(&c.peer, DigestOf(c.token))
		require.Equal(t, c.verdict, v, c.name)
		require.Equal(t, c.grant, g, c.name)
	}
}

func TestAGrantIsForItsNamespaces(t *testing.T) {
	a, _ := read(t).Find(&Peer{}, DigestOf("tenant-a"))
	require.True(t, a.Allows("llama"))
	require.False(t, a.Allows(""))
	require.False(t, a.Sees("qwen"))
	require.False(t, a.Whole())
	w, _ := read(t).Find(&Peer{}, DigestOf("watcher"))
	require.True(t, w.Sees("qwen") && w.Allows("qwen") && w.Whole())
	again, _ := read(t).Find(&Peer{}, DigestOf("tenant-a"))
	require.True(t, a.Equal(again))
	require.False(t, a.Equal(w))
}

func TestAFileThatIsWrongIsRefusedByItsLineAndWithoutItsTokens(t *testing.T) {
	for text, want := range map[string]string{
		"secret":             "line 1: the namespaces are missing",
		"\n\nsecret a,,b":    "line 3: a namespace has no name",
		"secret a,*":         "stands alone",
		"secret a root":      `"root" is no right`,
		"secret a\nsecret b": "line 2: the token is there already",
		"uid:x *":            "uid: it takes a number",
		"gid:-1 *":           "gid: it takes a number",
		"uid:4294967296 *":   "uid: it takes a number",
		"secret" + strings.Repeat("x", 59) + " *": "65 bytes",
		"secret\xff *":                         "not UTF-8",
		"secret " + strings.Repeat("n", 65):    "namespace",
		"secret " + strings.Repeat("n,", 4096): "longer than 4096",
	} {
		err := New(0).Read([]byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

// Who empties the file means to let nobody in, not everybody.
func TestAnEmptyFileLetsNobodyIn(t *testing.T) {
	l := New(7)
	require.NoError(t, l.Read(nil))
	for _, p := range []Peer{{}, {Local: true, UID: 7}} {
		_, v := l.Find(&p, Digest{})
		require.Equal(t, NoToken, v)
		_, v = l.Find(&p, DigestOf("x"))
		require.Equal(t, WrongToken, v)
	}
}

func TestVerdictsHaveWords(t *testing.T) {
	for _, v := range []Verdict{Granted, Stranger, NoToken, WrongToken, 9} {
		require.NotEmpty(t, v.String())
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(file))
	f.Fuzz(func(_ *testing.T, text []byte) {
		l := New(0)
		if l.Read(text) == nil {
			_, _ = l.Find(&Peer{Local: true, Groups: []uint32{1}}, DigestOf("x"))
		}
	})
}
