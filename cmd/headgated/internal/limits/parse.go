package limits

import (
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"google.golang.org/protobuf/types/known/structpb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// parser reads files into a config.
type parser struct {
	opts   Options
	config *Config
	zones  map[string]*time.Location
	nodes  int // mappings read, of all files

	algorithm string
	onFailure headgate.FailureMode // 0: an error
	charge    Charge
	borrow    time.Duration
}

// defaults reads the words of the options.
func (p *parser) defaults() (err error) {
	at := func(key, word string) words { return words{field{file: "options", key: key}, word} }
	if p.algorithm, err = at("algorithm", p.opts.Algorithm).algorithm("fixed-window"); err != nil {
		return err
	}
	if p.onFailure, err = at("on_failure", p.opts.OnFailure).failureMode(0); err != nil {
		return err
	}
	if p.borrow, err = at("borrow", p.opts.Borrow).length(0); err != nil {
		return err
	}
	p.charge, err = at("charge", p.opts.Charge).charge(ChargeDefault)
	return err
}

func (p *parser) parse(f File) error {
	n, more, err := document(f)
	if err != nil {
		return err
	}
	at := field{f.Name, "domain", 1, n}
	if more {
		p.warn(at, "the documents after the first are not read")
	}
	root, err := p.mapping(at, rootKeys, 0)
	if err != nil {
		return err
	}
	d, ok := root["domain"]
	if !ok {
		d = field{f.Name, "domain", 1, nil}
	}
	name, err := d.text()
	if err != nil {
		return err
	}
	if name == "" {
		return d.errorf("a file cannot have an empty domain")
	}
	domain := p.config.domains[name]
	if domain != nil && !p.opts.MergeDomains {
		return d.errorf("duplicate domain %q", name)
	}
	if domain == nil {
		domain = &node{}
		p.config.domains[name] = domain
	}
	return p.descriptors(domain, root["descriptors"], name, 1)
}

// descriptors reads a list of descriptors into their parent. path is the parent's.
func (p *parser) descriptors(parent *node, f field, path string, depth int) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	for _, n := range list {
		at := field{f.file, "descriptors", n.Line, n}
		fields, err := p.mapping(at, descriptorKeys, depth)
		if err != nil {
			return err
		}
		if err := p.descriptor(parent, at, fields, path, depth); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) descriptor(parent *node, at field, fields map[string]field, path string, depth int) error {
	name, err := nameOf(at, fields)
	if err != nil {
		return err
	}
	path += "." + name
	if _, has := parent.children[name]; has {
		return at.as("key").errorf("duplicate descriptor composite key %q", path)
	}
	n := &node{name: name}
	if n.rule, err = p.rule(fields, path); err != nil {
		return err
	}
	if n.valueToMetric, err = fields["value_to_metric"].truth(); err != nil {
		return err
	}
	share, err := fields["share_threshold"].truth()
	if err != nil {
		return err
	}
	key, _ := fields["key"].text()
	wild := strings.Contains(name, star)
	if share {
		if !wild {
			return fields["share_threshold"].errorf("wants a value with a '*', and %q has none", name)
		}
		n.share = strings.TrimPrefix(name, key+"_")
	}
	n.labelled(parent, name == key || wild && !share)
	if parent.children == nil {
		parent.children = map[string]*node{}
	}
	parent.children[name] = n
	if wild {
		parent.wildcards = append(parent.wildcards, newWildcard(n))
	}
	return p.descriptors(n, fields["descriptors"], path, depth+1)
}

// labelled notes whether requests add values to the labels of a node, and of its rule. An open
// node has values that the file does not fix.
func (n *node) labelled(parent *node, open bool) {
	n.open = parent.open || open
	n.valued = parent.valued || open && n.valueToMetric
	if n.rule != nil {
		n.rule.valued = n.valued || n.open && n.rule.detailed
	}
}

// as returns the field under another key, for an error.
func (f field) as(key string) field { return field{f.file, key, f.line, f.value} }

// nameOf returns "key" or "key_value", the name of a descriptor among its siblings.
func nameOf(at field, fields map[string]field) (string, error) {
	key, err := fields["key"].text()
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", at.as("key").errorf("a descriptor has an empty key")
	}
	value, err := fields["value"].text()
	if err != nil || value == "" {
		return key, err
	}
	return key + "_" + value, nil
}

// rule reads the rate_limit of a descriptor with what stands beside it.
func (p *parser) rule(fields map[string]field, path string) (_ *Rule, err error) {
	r := &Rule{Label: path, Limit: &rls.RateLimitResponse_RateLimit{}}
	if err := p.modes(r, fields); err != nil {
		return nil, err
	}
	if r.Metadata, err = metadata(fields["metadata"]); err != nil {
		return nil, err
	}
	f := fields["rate_limit"]
	if null(resolve(f.value)) {
		return nil, nil
	}
	r.File, r.Line = f.file, f.line
	limit, err := p.mapping(f, limitKeys, 0)
	if err != nil {
		return nil, err
	}
	if r.Unlimited, err = limit["unlimited"].truth(); err != nil {
		return nil, err
	}
	if r.Limit.RequestsPerUnit, err = limit["requests_per_unit"].number(); err != nil {
		return nil, err
	}
	if r.Limit.Name, err = limit["name"].text(); err != nil {
		return nil, err
	}
	if err := p.unit(r, f, limit); err != nil {
		return nil, err
	}
	if err := p.replaces(r, limit["replaces"]); err != nil {
		return nil, err
	}
	return r, p.additions(r, f, limit)
}

// modes reads the truth values that stand beside a rate_limit.
func (p *parser) modes(r *Rule, fields map[string]field) (err error) {
	for _, b := range []struct {
		key string
		to  *bool
	}{{"shadow_mode", &r.OwnShadow}, {"quota_mode", &r.Quota}, {"detailed_metric", &r.detailed}} {
		if *b.to, err = fields[b.key].truth(); err != nil {
			return err
		}
	}
	r.Shadow, r.Quota = r.OwnShadow || p.opts.Shadow, r.Quota || p.opts.Quota
	return nil
}

func (p *parser) unit(r *Rule, at field, limit map[string]field) error {
	f, ok := limit["unit"]
	if !ok {
		f = at
	}
	word, err := f.unitText(ok)
	if err != nil {
		return err
	}
	value := rls.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(word)]
	switch {
	case r.Unlimited && value != 0:
		return f.as("unit").errorf("an unlimited rate_limit has no unit")
	case !r.Unlimited && value == 0:
		return f.as("unit").errorf("invalid unit %q; want second, minute, hour, day, week, month or year", word)
	}
	times, err := limit["unit_multiplier"].multiplier()
	if err != nil {
		return err
	}
	r.setUnit(Unit(value), times)
	return nil
}

// multiplier returns the factor of a unit, 1 if there is none.
func (f field) multiplier() (uint32, error) {
	if null(resolve(f.value)) {
		return 1, nil
	}
	times, err := f.number()
	if err == nil && times == 0 {
		err = f.errorf("want at least 1")
	}
	return times, err
}

func (f field) unitText(ok bool) (string, error) {
	if !ok {
		return "", nil
	}
	return f.text()
}

func (p *parser) replaces(r *Rule, f field) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	for _, n := range list {
		fields, err := p.mapping(field{f.file, "replaces", n.Line, n}, replacesKeys, 0)
		if err != nil {
			return err
		}
		name, err := fields["name"].text()
		switch {
		case err != nil:
			return err
		case name == "":
			return field{f.file, "replaces", n.Line, n}.errorf("an entry has no name")
		case name == r.Limit.Name:
			return field{f.file, "replaces", n.Line, n}.errorf("contains the name of its own rate_limit")
		}
		r.Replaces = append(r.Replaces, name)
	}
	return nil
}

// metadata reads a mapping of anything.
func metadata(f field) (*structpb.Struct, error) {
	n := resolve(f.value)
	if null(n) {
		return nil, nil
	}
	var m map[string]any
	if err := n.Decode(&m); err != nil {
		return nil, f.errorf("want a mapping: %v", err)
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return nil, f.errorf("%v", err)
	}
	return s, nil
}
