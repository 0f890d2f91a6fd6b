//go:build go1.25 && !go1.26

package sim

import "testing"

func fixSecrets(*testing.T, uint64) {}
