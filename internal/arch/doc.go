// Package arch holds no code. Its tests keep the shape of the repository. They check who
// may import whom and why, what the core module depends on, and how long a function or a
// file may grow.
package arch
