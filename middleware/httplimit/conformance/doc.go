// Package conformance holds no code. Its tests read what httplimit sends with a
// structured fields parser that is not Headgate's. It is a module of its own, so
// that the core module does not depend on that parser.
package conformance
