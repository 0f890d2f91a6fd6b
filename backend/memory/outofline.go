package memory

// outOfLine holds what does not fit into a record, by the number that the record
// holds instead: the words of algorithms with many, and long keys.
type outOfLine struct {
	words [][]int64
	spare []uint32 // numbers that are free
}

func (o *outOfLine) add(words []int64) int64 {
	if n := len(o.spare); n > 0 {
		i := o.spare[n-1]
		o.spare = o.spare[:n-1]
		o.words[i] = words
		return int64(i)
	}
	o.words = append(o.words, words)
	return int64(len(o.words) - 1)
}

func (o *outOfLine) remove(number int64) {
	o.words[number] = nil
	o.spare = append(o.spare, uint32(number))
}

// minNumbers are so few that it does not matter how many of them are free.
const minNumbers = 8

// sparse reports whether three in four numbers are free.
func (o *outOfLine) sparse() bool {
	return len(o.words) > minNumbers && (len(o.words)-len(o.spare))*4 <= len(o.words)
}
