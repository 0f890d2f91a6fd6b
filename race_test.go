//go:build race

package headgate_test

const raced = true // the detector makes everything slower
