package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// settling is a failover's second or two, and a reserve for a machine that runs
	// every package's tests at once under -race.
	settling = 60 * time.Second
	// glance is the first pause between two queries. More frequent queries of six nodes
	// would take time from the test.
	glance = 5 * time.Millisecond
	// pause is the longest one while a cluster settles. A start takes 2 s: with short pauses
	// the queries took more processor time than all else that it does.
	pause = 50 * time.Millisecond
)

// Settle waits until the cluster is well. All living nodes agree on all roles,
// living primaries serve every slot, and living replicas have their primary's
// data. A test calls it after a Restart, and after any other change to a node
// before the next test relies on it.
func (c *Cluster) Settle(t testing.TB) {
	t.Helper()
	await(t, pause, c.unwell)
}

// await fails the test with the last error if check does not succeed in time. The pauses
// between two checks grow up to longest.
func await(t testing.TB, longest time.Duration, check func() error) {
	t.Helper()
	end, next := time.Now().Add(settling), glance
	for err := check(); err != nil; err = check() {
		if time.Now().After(end) {
			t.Fatalf("redistest: after %v: %v", settling, err)
		}
		time.Sleep(next)
		next = min(next*5/4, longest)
	}
}

// unwell returns the first reason why the cluster is not settled. It compares
// the views of all living nodes, since any one may be settled on an old
// state.
func (c *Cluster) unwell() error {
	living := c.living()
	if len(living) == 0 {
		return errors.New("no node lives")
	}
	first := ""
	for _, n := range living {
		v, err := n.well()
		if err == nil {
			err = v.amiss(len(c.all()), living)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.Addr(), err)
		}
		first = cmp.Or(first, v.String())
		if v.String() != first {
			return fmt.Errorf("%s sees\n%s%s sees\n%s", living[0].Addr(), first, n.Addr(), v)
		}
	}
	return nil
}

// well returns the node's view, or the reason why the node does not serve.
func (n *node) well() (view, error) {
	ctx := context.Background()
	pipe := n.admin.Pipeline()
	state, link, nodes := pipe.ClusterInfo(ctx), pipe.Info(ctx, "replication"), pipe.ClusterNodes(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	// A node that has just become primary may still refuse with CLUSTERDOWN.
	if !strings.Contains(state.Val(), "cluster_state:ok") {
		return nil, errors.New(state.Val())
	}
	if _, status, replica := strings.Cut(link.Val(), "\nmaster_link_status:"); replica && !strings.HasPrefix(status, "up") {
		return nil, errors.New("the link to its primary is down")
	}
	return parseView(nodes.Val()), nil
}

// view is CLUSTER NODES of one node, sorted by id. CLUSTER SLOTS and CLUSTER
// SHARDS, which go-redis parses, lack suspected failures and links.
type view []member

type member struct {
	id, primary string // the primary of a primary is "-"
	flags       []string
	linked      bool
	serves      []span
}

type span struct{ from, to int }

func (n *node) view() (view, error) {
	text, err := n.admin.ClusterNodes(context.Background()).Result()
	return parseView(text), err
}

// parseView sorts by id, so that views of the same state are equal as text.
func parseView(text string) (v view) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // id addr flags primary ping pong epoch link slot…
		if len(f) < 8 {
			continue
		}
		m := member{id: f[0], primary: f[3], flags: strings.Split(f[2], ","), linked: f[7] == "connected"}
		for _, s := range f[8:] {
			var r span
			if n, _ := fmt.Sscanf(s, "%d-%d", &r.from, &r.to); n == 2 {
				m.serves = append(m.serves, r)
			} else if n == 1 {
				m.serves = append(m.serves, span{r.from, r.from})
			} // an open slot, in brackets, is served by its owner
		}
		v = append(v, m)
	}
	slices.SortFunc(v, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return v
}

func (m member) has(flag string) bool { return slices.Contains(m.flags, flag) }

func (m member) owns(slot int) bool {
	return slices.ContainsFunc(m.serves, func(s span) bool { return s.from <= slot && slot <= s.to })
}

func (v view) self() member { return v.find(func(m member) bool { return m.has("myself") }) }

func (v view) find(is func(member) bool) member {
	if i := slices.IndexFunc(v, is); i >= 0 {
		return v[i]
	}
	return member{}
}

// amiss returns why a cluster of n nodes is not well in this view.
func (v view) amiss(n int, living []*node) error {
	if len(v) != n {
		return fmt.Errorf("knows %d of %d nodes", len(v), n)
	}
	served := 0
	for _, node := range living {
		m := v.find(func(m member) bool { return m.id == node.id })
		if !m.linked || m.has("fail") || m.has("fail?") || m.has("handshake") {
			return fmt.Errorf("sees %s as %v, linked %v", node.Addr(), m.flags, m.linked)
		}
		for _, s := range m.serves {
			served += s.to - s.from + 1
		}
	}
	if served != slots {
		return fmt.Errorf("sees living nodes serve %d of %d slots", served, slots)
	}
	return nil
}

// String has the roles and the slots, in which nodes of a settled cluster agree.
func (v view) String() string {
	var b strings.Builder
	for _, m := range v {
		fmt.Fprintln(&b, m.id, m.primary, m.serves)
	}
	return b.String()
}
