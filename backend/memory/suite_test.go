package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, storetest.Harness{New: func(*testing.T) storetest.Subject {
		var now atomic.Int64
		s := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})
		return storetest.Subject{Store: s, SetNow: now.Store}
	}})
}

func TestSuiteOnTheRealClock(t *testing.T) {
	storetest.Brief(t, storetest.Harness{New: func(*testing.T) storetest.Subject {
		return storetest.Subject{Store: memory.New(nil)}
	}})
}
