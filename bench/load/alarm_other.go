//go:build !linux

package load

import "time"

// alarm is as exact as time.Sleep is here.
type alarm struct{}

func newAlarm() *alarm { return &alarm{} }

func (*alarm) until(due time.Time) { time.Sleep(time.Until(due)) }

func (*alarm) close() {}
