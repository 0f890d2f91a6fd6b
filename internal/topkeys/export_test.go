package topkeys

// Hashes returns those of all keys that have a place.
func (s *Sketch) Hashes() (all []uint64) {
	for at := range s.table.Load().sets {
		for i := range s.table.Load().sets[at].hashes {
			if h := s.table.Load().sets[at].hashes[i].Load(); h != 0 {
				all = append(all, h|named)
			}
		}
	}
	return all
}
