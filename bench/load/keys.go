package load

import (
	"math/rand/v2"
	"strconv"
)

// Keys are keys and the order in which they are called. Both are made before
// anything is timed, and are the same for all subjects and turns. A decision in
// memory is too short to draw a random key beside it. Keys are safe for
// concurrent use, since nothing in them changes.
type Keys struct {
	names []string
	order []uint32 // a power of two of them, repeated
}

// seed makes the order the same in every run, so figures of two runs compare.
const seed = 0x68656164_67617465

// Hot is one key.
func Hot(name string) Keys {
	// As many draws as others have, so that the way to a key costs the same.
	return Keys{[]string{name}, make([]uint32, 1<<16)}
}

// Uniform is n keys, each as likely as any other.
func Uniform(prefix string, n int) Keys {
	r := rand.New(rand.NewPCG(seed, 1))
	return draw(prefix, n, func() uint32 { return uint32(r.IntN(n)) })
}

// Zipf is n keys, the k-th called in proportion to k^-s. With s = 1.1 the first
// of a million keys gets about every eighth call.
func Zipf(prefix string, n int, s float64) Keys {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 2)), s, 1, uint64(n-1))
	return draw(prefix, n, func() uint32 { return uint32(z.Uint64()) })
}

// Named is "hot", "zipf" or "uniform" by its name. These are one key, n keys of
// which the k-th is called in proportion to k^-1.1, and n keys, each as likely.
func Named(kind string, n int) Keys {
	switch kind {
	case "hot":
		return Hot("user:0")
	case "zipf":
		return Zipf("user:", n, 1.1)
	case "uniform":
		return Uniform("user:", n)
	}
	panic("bench: no keys are called " + kind)
}

// draw makes at least four draws per key, and a power of two of them: a
// caller's position then wraps by a mask.
func draw(prefix string, n int, next func() uint32) Keys {
	size := 1 << 16
	for size < 4*n {
		size *= 2
	}
	k := Keys{names(prefix, n), make([]uint32, size)}
	for i := range k.order {
		k.order[i] = next()
	}
	return k
}

// names cuts all keys from one string. A million separate strings would be work
// for the garbage collector, and would be measured with every subject.
func names(prefix string, n int) []string {
	var text []byte
	ends := make([]int, n)
	for i := range ends {
		text = strconv.AppendInt(append(text, prefix...), int64(i), 10)
		ends[i] = len(text)
	}
	all, begin := string(text), 0
	cut := make([]string, n)
	for i, end := range ends {
		cut[i] = all[begin:end]
		begin = end
	}
	return cut
}

// Names are the keys themselves.
func (k Keys) Names() []string { return k.names }

// walk is one caller's way through the keys. All callers follow the same order,
// each from its own place, so that two callers seldom call the same key at once
// by design.
type walk struct {
	Keys
	at int
}

func (k Keys) walk(caller, callers int) walk {
	return walk{k, len(k.order) / callers * caller}
}

// next costs a few nanoseconds: an index, a mask and two loads.
func (w *walk) next() string {
	w.at++
	return w.names[w.order[w.at&(len(w.order)-1)]]
}
