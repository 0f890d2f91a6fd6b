// Package redistest starts, inspects and breaks real Redis servers for tests.
//
// There is no fake in here, and none is wanted: a fake formats numbers, cuts
// fractions and expires keys in its own way, which hides the very mistakes that
// a script makes on a real server.
//
// Whatever a test starts here dies with the test process, however that ends.
package redistest
