// Package httpclient keeps an HTTP client below the rates of the servers that it calls.
//
// Transport is an http.RoundTripper. It obeys Retry-After and the RateLimit field of any
// server. Package httplimit is the server's side.
package httpclient
