package borrow

import "sync/atomic"

// stock is the units that a home has left, and the turn: how often the used units were read.
// Both are one word. So units that were not used go back only in the turn in which they were
// taken. Then no Borrow has reported them as used.
type stock struct{ word atomic.Uint64 }

// stockBits is the part of the word for the units, which may be below 0 for a moment. The
// rest is the turn.
const stockBits = 40

func unitsOf(word uint64) int64 { return int64(word<<(64-stockBits)) >> (64 - stockBits) }

func turnOf(word uint64) uint64 { return word >> stockBits }

// with returns the word with other units.
func with(word uint64, units int64) uint64 {
	const mask = 1<<stockBits - 1
	return word&^mask | uint64(units)&mask
}

// Load returns the units.
func (s *stock) Load() int64 { return unitsOf(s.word.Load()) }

// turn returns the turn.
func (s *stock) turn() uint64 { return turnOf(s.word.Load()) }

// take takes n units, if there are as many. It returns those that are left behind them.
func (s *stock) take(n int64) (t taken, ok bool) {
	for {
		word := s.word.Load()
		left := unitsOf(word) - n
		if left < 0 || s.word.CompareAndSwap(word, with(word, left)) {
			return taken{turnOf(word), left}, left >= 0
		}
	}
}

// Add adds units.
func (s *stock) Add(n int64) {
	for {
		word := s.word.Load()
		if s.word.CompareAndSwap(word, with(word, unitsOf(word)+n)) {
			return
		}
	}
}

// putBack adds units that were taken in a turn and not used, unless the used units were read
// since: then these units count as used.
func (s *stock) putBack(n int64, turn uint64) {
	for {
		word := s.word.Load()
		//mutant:put-back-of-this-turn
		if turnOf(word) != turn {
			return
		}
		if s.word.CompareAndSwap(word, with(word, unitsOf(word)+n)) {
			return
		}
	}
}

// read returns the units, and begins the next turn.
func (s *stock) read() int64 {
	return unitsOf(s.word.Add(1 << stockBits))
}
