package redistest

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// readValue appends one whole RESP value, version 2 or 3, request or reply, to
// buf. It keeps the bytes as they are. A proxy that counted reads would take a
// pipeline for one command, or half a command for one.
func readValue(r *bufio.Reader, buf []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	buf = append(buf, line...)
	if strings.IndexByte("$!=*~>%|", line[0]) < 0 {
		return buf, nil // all other types are one line, and so is an inline command
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n < 0 { // -1 is RESP2's null
		return buf, err
	}
	switch line[0] {
	case '$', '!', '=':
		buf = append(buf, make([]byte, n+2)...)
		_, err = io.ReadFull(r, buf[len(buf)-n-2:])
		return buf, err
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1 // attributes precede the value that they describe
	}
	for ; n > 0 && err == nil; n-- {
		buf, err = readValue(r, buf)
	}
	return buf, err
}

// verb is the name of the command in a request, in capitals.
func verb(request []byte) string {
	if request[0] == '*' {
		parts := bytes.SplitN(request, []byte("\r\n"), 4) // *3 $7 EVALSHA …
		if len(parts) < 4 {
			return ""
		}
		return strings.ToUpper(string(parts[2]))
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(request)), " ")
	return strings.ToUpper(word)
}
