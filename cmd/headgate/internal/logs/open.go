package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// sampled is the size of a buffer in bytes.
const sampled = 64 << 10

// Stdin is the name of the standard input.
const Stdin = "-"

// open returns the text of a file, decompressed if it is of gzip or zstd.
func open(name string, stdin io.Reader) (io.Reader, func() error, error) {
	if name == Stdin {
		r, err := decompressed(stdin)
		return r, func() error { return nil }, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	r, err := decompressed(f)
	if err != nil {
		err = errors.Join(err, f.Close())
	}
	return r, f.Close, err
}

// compressions are the first bytes of files that are no text.
var compressions = []struct {
	magic, name string
	open        func(io.Reader) (io.Reader, error)
}{
	{"\x1f\x8b", "gzip", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"\x28\xb5\x2f\xfd", "zstd", func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	}},
	{"BZh", "bzip2", nil}, {"\xfd7zXZ", "xz", nil}, {"\x04\x22\x4d\x18", "lz4", nil},
	{"\xff\xfe", "UTF-16", nil}, {"\xfe\xff", "UTF-16", nil}, {"PK\x03\x04", "zip", nil},
}

// decompressed looks at the first bytes of a file, whatever its name is.
func decompressed(file io.Reader) (io.Reader, error) {
	r := bufio.NewReaderSize(file, sampled)
	begin, err := r.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if bytes.HasPrefix(begin, []byte("\ufeff")) {
		_, err := r.Discard(3)
		return r, err
	}
	for _, c := range compressions {
		if !bytes.HasPrefix(begin, []byte(c.magic)) {
			continue
		}
		if c.open == nil {
			return nil, fmt.Errorf("the file is %s; want text, gzip or zstd", c.name)
		}
		text, err := c.open(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		return text, nil
	}
	return r, nil
}
