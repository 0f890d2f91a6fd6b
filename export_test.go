package headgate

// Cancelling returns how many reservations are being cancelled in the background.
func Cancelling(l *Limiter) int { return len(l.cancelling) }

// FillAbandoned leaves no room in the background until free is called.
func FillAbandoned(l *Limiter) (free func()) {
	for range cap(l.cancelling) {
		l.cancelling <- struct{}{}
	}
	return func() {
		for range cap(l.cancelling) {
			<-l.cancelling
		}
	}
}
