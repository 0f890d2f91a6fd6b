package batch

import (
	"testing"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/stretchr/testify/require"
)

// said is an error reply, as go-redis hands it on.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// TestRaisedErrorsMayHaveCharged: an error out of a running script is never
// classed as not run, in the words of any server.
func TestRaisedErrorsMayHaveCharged(t *testing.T) {
	for _, text := range []string{
		// Redis 7.0.15
		"ERR The user executing the script can't run this command or subcommand script: 7c39a5b8344f19c31dcd8894c6d1aec8b72fb31f, on @user_script:1.",
		"WRONGTYPE Operation against a key holding the wrong kind of value script: ab581ede7b26082f5448ca177eb9ca49c89bc38e, on @user_script:1.",
		// Redis 7.0.15, 8.0.6, 8.6.3, Valkey 8.1.1
		"OOM command not allowed when used memory > 'maxmemory'. script: a8e045687019c1230c01d4717e0579b12b1a1b50, on @user_script:1.",
		"NOREPLICAS Not enough good replicas to write. script: a8e045687019c1230c01d4717e0579b12b1a1b50, on @user_script:1.",
		"READONLY You can't write against a read only replica. script: a8e045687019c1230c01d4717e0579b12b1a1b50, on @user_script:1.",
		// Redis 8.0.6, 8.6.3, Valkey 8.1.1
		"ERR ACL failure in script: User default has no permissions to run the 'zadd' command script: 7c39a5b8344f19c31dcd8894c6d1aec8b72fb31f, on @user_script:1.",
		// Valkey 9.1.2
		"ERR ACL failure in script: User default has no permissions to run the 'zadd' command script: on @user_script:1.",
		"OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1.",
		"NOREPLICAS Not enough good replicas to write. script: on @user_script:1.",
		"READONLY You can't write against a read only replica. script: on @user_script:1.",
		// A server to come that words it as it does outside of scripts.
		"NOPERM User default has no permissions to run the 'zadd' command script: 7c39a5b8344f19c31dcd8894c6d1aec8b72fb31f, on @user_script:1.",
	} {
		require.False(t, is(said(text), notRun), text)
		require.False(t, is(said(text), soon), text)
		require.ErrorIs(t, outcome(said(text)), layer.ErrFailed)
	}
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",                // Redis 7.0.15
		"NOPERM User default has no permissions to run the 'evalsha' command",             // Redis 8.0.6, 8.6.3, Valkey 8.1.1, 9.1.2
		"NOPERM this user has no permissions to access one of the keys used as arguments", // Redis 7.0.15
		"NOPERM No permissions to access a key",                                           // Redis 8.0.6, 8.6.3, Valkey 8.1.1, 9.1.2
		"CROSSSLOT Keys in request don't hash to the same slot",                           // Redis 7.0.15: a node of a cluster, used as a single server
		"OOM command not allowed when used memory > 'maxmemory'.",                         // handed on by the script
		"READONLY You can't write against a read only replica.",                           // handed on by the script
	} {
		require.True(t, is(said(text), notRun), text)
	}
}
