package client

import "time"

// SetSilence makes a connection silent after d. The returned function undoes it.
func SetSilence(d time.Duration) (undo func()) {
	old := silence
	silence = d
	return func() { silence = old }
}
