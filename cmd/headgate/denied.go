package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	files "github.com/headgate-go/headgate/internal/file"
	"github.com/headgate-go/headgate/middleware/statuspage"
)

// denied is what one refresh of top -page prints: the keys that a process denies most.
type denied struct {
	Time   time.Time        `json:"time"`
	Denied []statuspage.Key `json:"denied"`
}

// maxPage is the number of bytes of a page's JSON that are read.
const maxPage = 16 << 20

// topOfPage prints the most denied keys of a live page, again and again. The counts are those of one
// process, since no store has them.
func topOfPage(ctx context.Context, s *session) error {
	if s.policies != "" {
		return misuse{errors.New("-page and -policies: want one of them")}
	}
	at, err := url.Parse(s.page)
	if err != nil || at.Host == "" {
		return misuse{fmt.Errorf("-page %s: want the URL of a live page, such as http://localhost:8080/page/", printable(s.page))}
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	at.Path = strings.TrimSuffix(at.Path, "/") + "/status.json"
	return s.again(ctx, func() error {
		d, err := read(ctx, client, at.String())
		if err != nil {
			return err
		}
		d.Denied = d.Denied[:min(s.rows, len(d.Denied))]
		s.clear()
		return s.print(d, d.text)
	})
}

// again calls refresh each -every until the command is ended.
func (s *session) again(ctx context.Context, refresh func() error) error {
	for {
		err := refresh()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || s.every == 0:
			return err
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// client returns a client that trusts the authorities of -ca.
func (s *session) client() (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if s.ca != "" {
		roots, err := files.Authorities(s.ca)
		if err != nil {
			return nil, misuse{fmt.Errorf("-ca: %w", err)}
		}
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &http.Client{Transport: t, Timeout: s.timeout}, nil
}

// read reads a page's JSON.
func read(ctx context.Context, client *http.Client, at string) (d denied, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return d, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return d, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return d, fmt.Errorf("%s: %s", at, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPage)).Decode(&d); err != nil {
		return d, fmt.Errorf("%s: no live page: %w", at, err)
	}
	return d, nil
}

func (d *denied) text(w *tabwriter.Writer) {
	fmt.Fprintf(w, "%s  the keys of the process that were denied most in the last five to ten minutes\n", d.Time.Local().Format(time.TimeOnly))
	row(w, "DENIED", "KEY")
	for _, k := range d.Denied {
		row(w, k.Count, cmp.Or(k.Key, "(hash) "+k.Hash))
	}
}
