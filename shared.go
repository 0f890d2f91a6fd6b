package headgate

import (
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// onePer returns what limiters on s have one of, such as the store that decides for
// FailLocal: what one of them let pass another does not let pass again. Limiters on a store
// of another author share nothing.
func onePer[T any](s backend.Store, fresh func(shared bool) T) T {
	shared := layer.Of(s)
	if shared == nil {
		return fresh(false)
	}
	type key struct{} // one for each T
	return shared.Value(key{}, func() any { return fresh(true) }).(T)
}
