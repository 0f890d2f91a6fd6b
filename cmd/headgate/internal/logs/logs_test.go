package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// read reads a log, and returns its calls as "instant key".
func read(t *testing.T, log string, opts Options) (calls []string, s *Stream) {
	t.Helper()
	opts.In = strings.NewReader(log)
	all, s, err := calling(opts)
	require.NoError(t, err)
	for _, c := range all {
		calls = append(calls, time.UnixMicro(c.At).UTC().Format("15:04:05.999999")+" "+s.Keys.Name(c.Key))
	}
	return calls, s
}

func calling(opts Options) (all []Call, s *Stream, err error) {
	if opts.Key == "" {
		opts.Key = "remote"
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = 1000
	}
	if opts.Unsorted == 0 {
		opts.Unsorted = 10 * time.Second
	}
	if s, err = Open(opts); err != nil {
		return nil, nil, err
	}
	for {
		calls, err := s.Next()
		if err == io.EOF {
			return all, s, s.Close()
		}
		if err != nil {
			return all, s, err
		}
		all = append(all, calls...)
	}
}

// formats are lines of the same call, as the programs write them.
var formats = []struct{ name, line string }{
	{"Common", `192.0.2.7 - alice [01/Mar/2026:13:00:05 +0100] "GET /a?b=1 HTTP/1.1" 200 17`},
	{"Combined", `192.0.2.7 - alice [01/Mar/2026:12:00:05 +0000] "GET /a?b=1 HTTP/1.1" 200 17 "https://x/\"y" "Agent \\"`},
	{"Combined with a virtual host", `shop:443 192.0.2.7 - alice [01/Mar/2026:12:00:05 +0000] "GET /a?b=1 HTTP/1.1" 200 17 "-" "-"`},
	{"Combined and 3 more fields", `192.0.2.7 - alice [01/Mar/2026:12:00:05 +0000] "GET /a?b=1 HTTP/1.1" 200 17 "-" "A" "10.0.0.1" rt=0.010 uct="0.1 0.2"`},
	{"Combined and 4 more fields", `192.0.2.7 - alice [01/Mar/2026:12:00:05 +0000] "GET /a?b=1 HTTP/1.1" 200 17 "-" "A" 42 "web@docker" "http://10.0.0.3:80" 12ms`},
	{"JSON lines of Caddy", `{"level":"info","ts":1772366405.0,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.7","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"shop","uri":"/a?b=1","headers":{"User-Agent":["A","B"],"X-Api-Key":["k\u0031"]}},"user_id":"alice","duration":0.01,"size":17,"status":200}`},
	{"JSON lines of Traefik", `{"ClientAddr":"192.0.2.7:5555","ClientHost":"192.0.2.7","ClientUsername":"alice","Duration":10000000,"DownstreamContentSize":17,"DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/a?b=1","StartUTC":"2026-03-01T12:00:05Z","request_X-Api-Key":"k1","level":"info","msg":"","time":"2026-03-01T12:00:06Z"}`},
	{"JSON lines of Envoy", `{"start_time":"2026-03-01T12:00:05Z","downstream_remote_address":"192.0.2.7:5555","method":"GET","path":"/a?b=1","response_code":200,"bytes_sent":17,"duration":10,"user":"alice"}`},
	{"JSON lines of slog", `{"time":"2026-03-01T13:00:05+01:00","level":"INFO","msg":"request","remote_addr":"192.0.2.7:1","user":"alice","path":"/a","method":"GET","bytes":17}`},
	{"JSON lines", `{"time_iso8601":"2026-03-01T12:00:05+00:00","remote_addr":"192.0.2.7","remote_user":"alice","request_uri":"/a?b=1","request_method":"GET","body_bytes_sent":"17"}`},
	{"CSV", "time,remote,user,path,method,bytes\n2026-03-01 12:00:05,192.0.2.7,\"alice\",/a,GET,17"},
	{"CSV", "Timestamp;IP;User;Url;Method;Size\r\n1772366405;192.0.2.7;alice;\"/a?b=1\";GET;17\r"},
	{"CSV", "ts\tclient\tuser\turi\tmethod\tbytes\n1772366405000000000\t192.0.2.7\talice\t/a\tGET\t17"},
}

// TestFormats: each format is guessed, and its fields have one name.
func TestFormats(t *testing.T) {
	for _, f := range formats {
		calls, s := read(t, f.line+"\n", Options{Key: "{remote}|{user}|{path}|{method}", Costs: []string{"bytes"}})
		require.Equal(t, []string{"12:00:05 192.0.2.7|alice|/a|GET"}, calls, f.line)
		src := s.Sources()[0]
		require.Equal(t, f.name, src.Format, f.line)
		require.True(t, src.Guessed)
		require.Zero(t, src.Unreadable)
	}
	for i, key := range map[int]string{3: "extra1", 5: "header:x-api-key", 6: "header:X-API-Key"} {
		calls, _ := read(t, formats[i].line+"\n", Options{Key: key})
		require.Equal(t, []string{"12:00:05 " + map[string]string{"extra1": "10.0.0.1"}[key] + map[bool]string{true: "k1"}[key != "extra1"]}, calls)
	}
	calls, _ := read(t, formats[3].line+"\n", Options{Key: "{rt}/{uct}"})
	require.Equal(t, []string{"12:00:05 0.010/0.1 0.2"}, calls)
}

// TestFirstLines: lines before those of the log do not decide its format, and nothing is lost.
func TestFirstLines(t *testing.T) {
	for i, f := range formats {
		before := "Server started, listening\nx;y\n\n"
		if f.name == "CSV" {
			before = "\n\r\n"
		}
		calls, s := read(t, before+f.line+"\n", Options{})
		require.Len(t, calls, 1, i)
		require.Equal(t, f.name, s.Sources()[0].Format)
		require.EqualValues(t, strings.Count(before+f.line+"\n", "\n"), s.Sources()[0].Lines)
	}
	_, _, err := calling(Options{In: strings.NewReader("when,who\n1,2\n")})
	require.ErrorContains(t, err, `no field "time" among ["when" "who"]`)
	_, _, err = calling(Options{In: strings.NewReader("when,who\n1,2\n"), At: "when", Key: "nobody", Format: "csv"})
	require.ErrorContains(t, err, `no field "nobody" among ["when" "who"]`)
}

// TestDuration: the begin is reckoned from the end, and calls are sorted by it.
func TestDuration(t *testing.T) {
	at := func(end string, took string) string {
		return strings.Replace(strings.Replace(formats[5].line, "1772366405.0", end, 1), `"duration":0.01`, `"duration":`+took, 1) + "\n"
	}
	log := at("1772366405.5", "0.25") + at("1772366406.0", "5e-1") + at("1772366406.1", "3.1")
	calls, _ := read(t, log, Options{Duration: "duration"})
	require.Equal(t, []string{"12:00:03 192.0.2.7", "12:00:05.25 192.0.2.7", "12:00:05.5 192.0.2.7"}, calls)
	calls, _ = read(t, formats[3].line+"\n", Options{Duration: "rt:s"})
	require.Equal(t, []string{"12:00:04.99 192.0.2.7"}, calls)
	calls, _ = read(t, formats[4].line+"\n", Options{Duration: "extra4"})
	require.Equal(t, []string{"12:00:04.988 192.0.2.7"}, calls, "the value has a unit of its own")
	for text, want := range map[string]int64{"1m": 60e6, "1ms": 1000, "1": 1e6, "0.0015": 1500, "2.": 2e6, "1e-3": 1000, "-1": -1, "NaN": -1, "1e400": -1, "1e18": -1, "x": -1, "5s5": -1} {
		if us, err := took([]byte(text), "s"); err == nil {
			require.Equal(t, want, us, text)
		} else {
			require.EqualValues(t, want, -1, text)
		}
	}
	_, s := read(t, formats[3].line+"\n", Options{Duration: "rt"})
	require.Contains(t, s.Sources()[0].First[0].Reason, "has no unit")
	_, _, err := calling(Options{In: strings.NewReader(formats[7].line), Duration: "duration"})
	require.ErrorContains(t, err, "the times of Envoy are those of the begin of a call")
	_, s = read(t, at("1772366405.5", "60.0"), Options{Duration: "duration", Unsorted: time.Minute})
	require.Zero(t, s.Sources()[0].Late)
	_, s = read(t, at("1772366405.5", "0")+at("1772366405.6", "61.0"), Options{Duration: "duration", Unsorted: time.Minute})
	require.EqualValues(t, 1, s.Sources()[0].Late)
	require.EqualValues(t, 60_900_000, s.Sources()[0].Behind)
}

// TestUnreadable: wrong and cut lines are counted, and the first three are kept. Nothing else is
// lost by them.
func TestUnreadable(t *testing.T) {
	for _, f := range formats[:10] {
		wrong := []string{"garbage", "\x00\xff\xfe", "{}", "{", `{"time":`, " - - [] \"", `x - - [31/Feb/2026:12:00:05 +0000] "GET / HTTP/1.1" 200 1`, `x - - [01/Mar/2026:25:00:05 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`}
		for at := 1; at < len(f.line); at += 7 {
			wrong = append(wrong, f.line[:at])
		}
		log := f.line + "\n" + strings.Join(wrong, "\n") + "\n\n" + f.line + "\n"
		calls, s := read(t, log, Options{})
		src := s.Sources()[0]
		require.Len(t, calls, int(src.Calls))
		require.EqualValues(t, len(wrong)+3, src.Lines)
		require.EqualValues(t, src.Lines-1, src.Unreadable+src.Calls+src.Keyless, f.name)
		require.GreaterOrEqual(t, src.Unreadable, int64(len(wrong)*2/3), f.name)
		require.Len(t, src.First, 3)
		require.EqualValues(t, 2, src.First[0].Line)
		for _, c := range calls {
			require.Equal(t, "12:00:05", c[:8])
		}
	}
}

// TestMutated: whatever bytes a line has, it is a call or it is counted.
func TestMutated(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for _, f := range formats {
		var log strings.Builder
		log.WriteString(f.line + "\n")
		_, line, csv := strings.Cut(f.line, "\n")
		if !csv {
			line = f.line
		}
		n := int64(2000)
		for range n {
			b := []byte(line)
			for range 1 + r.IntN(3) {
				switch at := r.IntN(len(b)); r.IntN(3) {
				case 0:
					b[at] = byte(r.IntN(256))
				case 1:
					b = append(b[:at], b[min(len(b), at+1+r.IntN(9)):]...)
				default:
					b = slices.Insert(b, at, []byte(" \"\\[]{},:/-\x00")[r.IntN(12)])
				}
				if b = bytes.ReplaceAll(b, []byte("\n"), nil); len(b) == 0 {
					b = []byte("x")
				}
			}
			if len(bytes.TrimRight(b, "\r")) == 0 {
				b = []byte("x")
			}
			log.Write(append(b, '\n'))
		}
		_, s := read(t, log.String(), Options{Key: "{remote}|{user}|{path}", Costs: []string{"bytes"}, MaxKeys: 5000})
		src := s.Sources()[0]
		require.Equal(t, n+1, src.Calls+src.Unreadable+src.Keyless, f.name)
		require.Greater(t, src.Unreadable, n/20, f.name)
		require.Greater(t, src.Calls, n/20, f.name)
	}
}

// TestCutLine: a last line without an end counts if its format shows that it is whole.
func TestCutLine(t *testing.T) {
	for _, f := range formats {
		head, last, csv := strings.Cut(f.line, "\n")
		for at := 1; at <= len(last) && csv; at++ {
			calls, _ := read(t, head+"\n"+last[:at], Options{Costs: []string{"user"}})
			require.Empty(t, calls)
		}
	}
	common := formats[0].line
	_, s := read(t, common+"5\n"+common, Options{Costs: []string{"bytes"}})
	require.EqualValues(t, 1, s.Sources()[0].Calls, "the size may be cut")
	require.Equal(t, errCut.Error(), s.Sources()[0].First[0].Reason)
	for _, i := range []int{1, 5, 7} {
		calls, _ := read(t, formats[i].line, Options{})
		require.Len(t, calls, 1, formats[i].name)
	}
}

// TestLongLines: a line of 10^6 bytes is read, one above the bound is counted.
func TestLongLines(t *testing.T) {
	long := func(n int) string {
		return fmt.Sprintf(`{"ts":1772366405.25,"remote":"192.0.2.7","more":"%s"}`+"\n", strings.Repeat("x", n))
	}
	for _, first := range []string{"", long(1)} {
		calls, s := read(t, first+long(1_000_000)+long(LongestLine)+long(2*LongestLine)+long(70_000), Options{})
		require.Len(t, calls, 2+strings.Count(first, "\n"))
		require.EqualValues(t, 2, s.Sources()[0].Unreadable)
		require.Equal(t, errLong.Error(), s.Sources()[0].First[0].Reason)
	}
	_, _, err := calling(Options{In: strings.NewReader(long(LongestLine))})
	require.ErrorContains(t, err, "no line can be read: longer than 4 MiB", "it is not empty")
	calls, s := read(t, long(1)+strings.Replace(long(1), "192.0.2.7", strings.Repeat("k", 4097), 1)+strings.Replace(long(1), "192.0.2.7", strings.Repeat("k", 4096), 1), Options{})
	require.Len(t, calls, 2)
	require.Contains(t, s.Sources()[0].First[0].Reason, "a key of 4097 bytes")
}

// TestZones: each line counts by its own zone. An hour that the clocks repeat is two hours.
func TestZones(t *testing.T) {
	line := func(at string) string {
		return strings.Replace(formats[0].line, "01/Mar/2026:13:00:05 +0100", at, 1) + "\n"
	}
	calls, _ := read(t, line("25/Oct/2026:02:59:59 +0200")+line("25/Oct/2026:02:00:00 +0100")+line("24/Oct/2026:20:00:01 -0500")+line("25/Oct/2026:06:45:02 +0545"), Options{})
	require.Equal(t, []string{"00:59:59 192.0.2.7", "01:00:00 192.0.2.7", "01:00:01 192.0.2.7", "01:00:02 192.0.2.7"}, calls)

	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	csv := func(times ...string) string { return "time,remote\n" + strings.Join(times, ",x\n") + ",x\n" }
	calls, s := read(t, csv("2026-10-25 01:59:59", "2026-10-25 02:30:00", "2026-10-25 02:59:59", "2026-10-25 02:00:00", "2026-10-25 02:30:00", "2026-10-25 03:00:00"), Options{Zone: berlin})
	require.Equal(t, []string{"23:59:59 x", "00:30:00 x", "00:59:59 x", "01:00:00 x", "01:30:00 x", "02:00:00 x"}, calls)
	require.EqualValues(t, 4, s.Sources()[0].Repeated)
	require.EqualValues(t, 6, s.Sources()[0].Zoneless)
	require.Equal(t, "Europe/Berlin", s.Sources()[0].Zone)
	calls, s = read(t, csv("2026-03-29 01:59:59", "2026-03-29 02:30:00", "2026-03-29 03:00:00"), Options{Zone: berlin})
	require.Equal(t, []string{"00:59:59 x", "01:00:00 x"}, calls)
	require.Contains(t, s.Sources()[0].First[0].Reason, "the clocks of the zone leave out")
	calls, _ = read(t, csv("2026-10-25 02:30:00.5", "2026-10-25T02:30:01.25Z", "\"2026-10-25 04:30:02,125+02:00\""), Options{})
	require.Equal(t, []string{"02:30:00.5 x", "02:30:01.25 x", "02:30:02.125 x"}, calls)
}

// TestInstants: the instants are those of package time, for the forms that logs have.
func TestInstants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	c := clock{zone: time.UTC}
	for range 20_000 {
		at := time.UnixMicro(r.Int64N(mostInstant)).In(time.FixedZone("", (r.IntN(52)-24)*1800))
		for _, layout := range []string{time.RFC3339Nano, "02/Jan/2006:15:04:05.000000 -0700", "2006-01-02 15:04:05.999999999Z07:00"} {
			text := at.Format(layout)
			got, err := c.read([]byte(text), 0)
			require.NoError(t, err, text)
			require.Equal(t, at.UnixMicro(), got, text)
		}
	}
	for text, want := range map[string]int64{
		"1700000000": 1700000000e6, "1700000000.25": 1700000000.25e6, "1700000000123": 1700000000123e3, "1700000000123456": 1700000000123456,
		"1700000000123456789": 1700000000123456, "1.7e+09": 1700000000e6, "1.70000000025E9": 1700000000.25e6, "29/Feb/2024:23:59:60 +0000": 1709251200e6,
	} {
		got, err := c.read([]byte(text), 0)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "-", "x", "-5", "1e400", "NaN", "1.2.3", "2026-03-01", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-03-01T00:00:00+24:00", "2026-03-01T00:00:00 CET",
		"99999999999999999999", "2200-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "2026-03-01T00:00:00.Z", "00/Mar/2026:00:00:00 +0000", "01/Foo/2026:00:00:00 +0000",
	} {
		_, err := c.read([]byte(text), 0)
		require.Error(t, err, text)
	}
}

// TestUnsorted: lines within the bound are sorted, older ones are counted. Which is which does not
// depend on how many lines are read at once.
func TestUnsorted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var log strings.Builder
	var want []int64
	late, newest := int64(0), int64(0)
	for i := range 30_000 {
		at := int64(1700000000000) + int64(i)*3 - r.Int64N(10_400)
		fmt.Fprintf(&log, "{\"ts\":%d,\"remote\":\"x\"}\n", at)
		if newest-at > 10_000 {
			late++
			continue
		}
		newest = max(newest, at)
		want = append(want, at*1000)
	}
	slices.Sort(want)
	got, s, err := calling(Options{In: strings.NewReader(log.String()), Within: "start"})
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i].At)
	}
	require.Greater(t, late, int64(100))
	require.Equal(t, late, s.Sources()[0].Late)
	require.Greater(t, s.Sources()[0].Behind, int64(10_000_000))
	require.EqualValues(t, 30_000, s.Sources()[0].Calls)
}

// TestSpread: the calls of one second are spread over it in their order, also if other seconds lie
// between their lines.
func TestSpread(t *testing.T) {
	line := func(second int, host string) string {
		return fmt.Sprintf("%s - - [01/Mar/2026:12:00:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", host, second)
	}
	log := line(5, "a") + line(6, "b") + line(5, "c") + line(6, "d") + line(5, "e") + line(5, "f")
	calls, _ := read(t, log, Options{Within: "second"})
	require.Equal(t, []string{"12:00:05 a", "12:00:05.25 c", "12:00:05.5 e", "12:00:05.75 f", "12:00:06 b", "12:00:06.5 d"}, calls)
	calls, _ = read(t, log, Options{Within: "start"})
	require.Equal(t, []string{"12:00:05 a", "12:00:05 c", "12:00:05 e", "12:00:05 f", "12:00:06 b", "12:00:06 d"}, calls)
	calls, _ = read(t, "time,remote\n2026-03-01T12:00:05Z,a\n2026-03-01T12:00:05Z,b\n2026-03-01T12:00:05.2Z,c\n", Options{Within: "second"})
	require.Equal(t, []string{"12:00:05 a", "12:00:05.05 b", "12:00:05.2 c"}, calls, "a step of 0.1 s")
}

// TestFiles: several files are merged by time, whatever they are compressed by.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var texts [3]bytes.Buffer
	var want []int64
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 20_000 {
		at := int64(1700000000000000) + int64(i)*777
		fmt.Fprintf(&texts[r.IntN(3)], "{\"ts\":%d,\"remote\":\"x\"}\n", at)
		want = append(want, at)
	}
	var names []string
	for i, open := range []func(io.Writer) io.WriteCloser{
		func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
		nil,
	} {
		names = append(names, filepath.Join(dir, fmt.Sprint(i)))
		var b bytes.Buffer
		b.Write(texts[i].Bytes())
		if open != nil {
			b.Reset()
			w := open(&b)
			_, err := w.Write(texts[i].Bytes())
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
		require.NoError(t, os.WriteFile(names[i], b.Bytes(), 0o600))
		if open != nil {
			cut := names[i] + ".cut"
			require.NoError(t, os.WriteFile(cut, b.Bytes()[:b.Len()*2/3], 0o600))
			_, _, err := calling(Options{Files: []string{cut}})
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.ErrorContains(t, err, cut+": after line ")
		}
	}
	got, _, err := calling(Options{Files: names})
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i].At)
	}
	for begin, says := range map[string]string{"BZh91AY": "bzip2", "\xfd7zXZ\x00": "xz", "\xff\xfet\x00": "UTF-16", "\x1f\x8bgarbage": "gzip", "nothing that is a log\nat all\n": "no format fits"} {
		require.NoError(t, os.WriteFile(names[0], []byte(begin), 0o600))
		_, _, err := calling(Options{Files: names[:1]})
		require.ErrorContains(t, err, says)
	}
}

type broken struct{ text io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.text.Read(p)
	if err == io.EOF {
		err = errors.New("connection reset")
	}
	return n, err
}

// TestPipe: an input that ends with an error is an error with the place. An empty one has no calls.
func TestPipe(t *testing.T) {
	log := strings.Repeat(formats[0].line+"\n", 10_000)
	_, _, err := calling(Options{In: broken{strings.NewReader(log)}})
	require.EqualError(t, err, "standard input: after line 10000: connection reset")
	calls, s := read(t, "", Options{})
	require.Empty(t, calls)
	require.Equal(t, "empty", s.Sources()[0].Format)
	calls, s = read(t, "\n\n\r\n", Options{})
	require.Empty(t, calls)
	require.Zero(t, s.Sources()[0].Unreadable)
}

// TestTemplates: of several fields no two keys are one by chance. IPv6 counts by networks, as in
// middleware.
func TestTemplates(t *testing.T) {
	line := func(remote, user string) string {
		return fmt.Sprintf("{\"ts\":1772366405.0,\"remote\":%q,\"user\":%q}\n", remote, user)
	}
	calls, s := read(t, line("a|b", "c")+line("a", "b|c")+line("a%7C", "b")+line("a", ""), Options{Key: "{remote}|{user}", Within: "start"})
	require.Equal(t, []string{"12:00:05 a%7Cb|c", "12:00:05 a|b%7Cc", "12:00:05 a%257C|b"}, calls)
	require.EqualValues(t, 1, s.Sources()[0].Keyless)
	calls, _ = read(t, line("2001:db8::1", "")+line("[2001:db8::2]:443", "")+line("::ffff:192.0.2.1", "")+line("192.0.2.1:80", "")+line("[2001:db8::2]:443", ""), Options{Within: "start"})
	require.Equal(t, []string{"12:00:05 2001:db8::/64", "12:00:05 2001:db8::/64", "12:00:05 192.0.2.1", "12:00:05 192.0.2.1", "12:00:05 2001:db8::/64"}, calls)
	for _, key := range []string{"{", "{}", "{a}{b}", "a}", "{a", "{{a}}", "}{"} {
		_, _, err := calling(Options{In: strings.NewReader(""), Key: key})
		require.ErrorContains(t, err, "-key: ", key)
	}
}

// TestNoText: JSON texts that are not Unicode do not become one key.
func TestNoText(t *testing.T) {
	line := func(text string) string { return `{"ts":1772366405.0,"user":"` + text + `"}` + "\n" }
	calls, s := read(t, line("a\xff")+line("a\xfe")+line(`\u0061\ufffd`)+line("\\u0061\ufffd")+line("\\u0061\xff")+line(`a\ud800`)+line(`a\ud83d\ude00`), Options{Key: "user", Within: "start"})
	require.Equal(t, []string{"12:00:05 a\xff", "12:00:05 a\xfe", "12:00:05 a\ufffd", "12:00:05 a\ufffd", "12:00:05 a\xff", "12:00:05 a\U0001f600"}, calls)
	require.EqualValues(t, 1, s.Sources()[0].Unreadable)
	require.Equal(t, errText.Error(), s.Sources()[0].First[0].Reason)
}

// TestKeys: each text has a number of its own, and other texts may have it too.
func TestKeys(t *testing.T) {
	k := NewKeys()
	want := map[string]uint32{}
	r := rand.New(rand.NewPCG(9, 9))
	for range 200_000 {
		text := strings.Repeat("k", r.IntN(3)) + fmt.Sprint(r.IntN(60_000))
		n, known := want[text]
		other := false
		switch {
		case !known && r.IntN(5) == 0 && k.Len() > 0:
			n = uint32(r.IntN(k.Len()))
			k.alias([]byte(text), n)
			other = true
		case !known:
			n = uint32(k.Len())
		}
		require.Equal(t, n, k.Number([]byte(text)))
		if want[text] = n; !known && !other {
			require.Equal(t, text, k.Name(n))
		}
	}
}
