package redistest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Link is the only way to a server in a network namespace of its own.
type Link struct{ name string }

// StartBehindLink runs a server behind a link whose packets can be dropped. It needs
// root, ip and nft, and skips the test without them.
func StartBehindLink(t testing.TB, args ...string) (*Server, *Link) {
	t.Helper()
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skipf("NOT TESTED: a link needs root and %s; install it with: apt-get install -y iproute2 nftables", tool)
		}
	}
	n := rand.IntN(1 << 14)
	l, near, far := &Link{fmt.Sprint("hg", n)}, fmt.Sprintf("10.213.%d.%d", n>>6, n&63<<2+1), fmt.Sprintf("10.213.%d.%d", n>>6, n&63<<2+2)
	t.Cleanup(func() {
		_ = l.run("nft delete table netdev NAME")
		_ = l.run("ip netns del NAME") // and the link with it
	})
	for _, command := range []string{
		"ip netns add NAME",
		"ip link add NAME type veth peer name eth0 netns NAME",
		"ip addr add " + near + "/30 dev NAME",
		"ip link set NAME up",
		"ip -n NAME addr add " + far + "/30 dev eth0",
		"ip -n NAME link set eth0 up",
		"ip -n NAME link set lo up",
	} {
		if err := l.run(command); err != nil {
			t.Skip("NOT TESTED: no link: ", err)
		}
	}
	s := &Server{bin: locate(t), dir: t.TempDir(), host: far, netns: l.name, args: slices.Concat(defaults, args), port: 6379}
	check(t, s.run())
	t.Cleanup(s.Kill)
	return s, l
}

// Drop drops every packet, in both directions, at the end where it arrives.
func (l *Link) Drop() {
	const rules = "table netdev NAME { chain in { type filter hook ingress device DEV priority 0; policy drop; }; }"
	must(l.feed(strings.Replace(rules, "DEV", "NAME", 1), "nft", "-f", "-"))
	must(l.feed(strings.Replace(rules, "DEV", "eth0", 1), "ip", "netns", "exec", l.name, "nft", "-f", "-"))
}

// Pass ends a Drop.
func (l *Link) Pass() {
	must(l.run("ip netns exec NAME nft delete table netdev NAME"))
	must(l.run("nft delete table netdev NAME"))
}

func (l *Link) run(command string) error {
	args := strings.Fields(strings.ReplaceAll(command, "NAME", l.name))
	return l.feed("", args[0], args[1:]...)
}

func (l *Link) feed(in, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(in, "NAME", l.name))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("redistest: %s %v: %w: %s", name, args, err, out)
	}
	return nil
}
