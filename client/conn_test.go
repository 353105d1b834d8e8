package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATokenThatCannotBeSentIsRefused(t *testing.T) {
	for token, says := range map[string]string{
		strings.Repeat("x", 80): "client: the token has 80 bytes, at most 64",
		"\xff-secret":           "client: the token is not UTF-8, or contains a NUL",
		"a\x00-secret":          "client: the token is not UTF-8, or contains a NUL",
	} {
		_, err := Dial(context.Background(), "unix:/nowhere", Options{Token: token})
		require.EqualError(t, err, says)
		_, err = Open(context.Background(), "unix:/nowhere", Options{Token: token}, Registration{})
		require.ErrorContains(t, err, says)
	}
}

func TestALookupWithoutALeaseHasNoValues(t *testing.T) {
	var r LookupResult
	require.Empty(t, r.Lease.Values())
	require.Empty(t, r.Lease.Handles())
	require.Zero(t, r.Lease.Handle())
	require.NoError(t, r.Lease.Release(context.Background()))
}

// A token that was changed is read again by the next connection.
func TestATokenMayComeFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{
		"word\n": "word", "# of the server\n\nword\n": "word", "word llama shm\n": "", "# none\n": "", " word \r\nmore\n": "word", "word": "word", "": "", "\n": "", "a\x00b": "", strings.Repeat("x", 5000): "",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := (&Options{TokenFile: file}).token()
		if want == "" {
			require.Error(t, err, "%q", text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := (&Options{Token: "first", TokenFile: "/none"}).token()
	require.NoError(t, err)
	require.Equal(t, "first", got)
	_, err = (&Options{TokenFile: "/none"}).token()
	require.ErrorIs(t, err, os.ErrNotExist)
}
