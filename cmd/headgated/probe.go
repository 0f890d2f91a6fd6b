package main

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// probeTimeout is how long -probe waits for an answer.
const probeTimeout = 2 * time.Second

// probe returns the exit status of -probe: 0 if /ready at the address answers 200, else 1. An
// image without a shell has no other program that could ask.
func probe(address string, stderr io.Writer) int {
	//mutant:probe-without-proxy
	c := http.Client{Timeout: probeTimeout, Transport: &http.Transport{}} // and not by way of HTTP_PROXY
	resp, err := c.Get("http://" + address + "/ready")
	if err != nil {
		fmt.Fprintf(stderr, "headgated: -probe: %v\n", err)
		return 1
	}
	_ = resp.Body.Close()
	//mutant:probe-wants-ready
	if resp.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "headgated: -probe: %s\n", resp.Status)
		return 1
	}
	return 0
}
