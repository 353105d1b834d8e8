package client

import (
	"context"
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
