package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/unknown"
	"github.com/headgate-go/headgate/internal/file"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// limitsType is the resource that has the limits of a domain.
const limitsType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// xdsPause is how long the server waits before it connects again.
const xdsPause = time.Second

// xdsPing is how long the discovery service may be silent before it is asked for a sign of
// life. By default a server of gRPC ends a connection that asks more often than each 5 minutes.
const xdsPing = 6 * time.Minute

// xdsPong is how long that sign may take.
const xdsPong = 20 * time.Second

// xdsClient receives limits by Envoy's discovery protocol, state of the world. Each
// resource is a file to the parser: what is refused, and what a domain means, is the same.
type xdsClient struct {
	watcher *watcher
	conn    *grpc.ClientConn
	node    *core.Node
	headers metadata.MD
	refused refusals // the goroutine's that follows
}

// xdsConfig reads the certificates of the connection to the discovery service.
func (s *settings) xdsConfig() (config *tls.Config, err error) {
	config = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.xdsName}
	if s.xdsCA != "" {
		if config.RootCAs, err = file.Authorities(s.xdsCA); err != nil {
			return nil, fmt.Errorf("-xds-ca: %w", err)
		}
	}
	if s.xdsCert != "" {
		pair, err := file.KeyPair(s.xdsCert, s.xdsKey)
		if err != nil {
			return nil, fmt.Errorf("-xds-cert and -xds-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// renewed are credentials that are read for each connection, since certificates are renewed
// while the server runs.
type renewed struct {
	credentials.TransportCredentials // those of the start
	read                             func() (*tls.Config, error)
}

func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.read()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (r renewed) Clone() credentials.TransportCredentials { return r }

// openXDS does no I/O but to read certificates.
func (s *settings) openXDS(w *watcher) (*xdsClient, error) {
	creds := insecure.NewCredentials()
	if s.xdsTLS || s.xdsCA != "" || s.xdsCert != "" {
		config, err := s.xdsConfig()
		if err != nil {
			return nil, err
		}
		//mutant:discovery-certificates-renewed
		creds = renewed{credentials.NewTLS(config), s.xdsConfig}
	}
	conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.xdsMaxMessage)),
		//mutant:silent-discovery-pinged
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.xdsPing, Timeout: xdsPong}))
	if err != nil {
		return nil, fmt.Errorf("-xds: %w", err)
	}
	node := &core.Node{Id: s.xdsNode}
	for _, pair := range pairsOf(s.xdsMetadata) {
		if node.Metadata == nil {
			node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		node.Metadata.Fields[pair[0]] = structpb.NewStringValue(pair[1])
	}
	headers := metadata.MD{}
	for _, pair := range pairsOf(s.xdsHeaders) {
		headers.Append(pair[0], pair[1])
	}
	return &xdsClient{watcher: w, conn: conn, node: node, headers: headers}, nil
}

// pairsOf returns the pairs of "name=value,name=value". settings.check has read them.
func pairsOf(list string) (pairs [][2]string) {
	for _, entry := range strings.Split(list, ",") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	return pairs
}

// follow receives limits until ctx ends. Without the other side those in use stay.
func (x *xdsClient) follow(ctx context.Context) {
	ctx = metadata.NewOutgoingContext(ctx, x.headers)
	for ctx.Err() == nil {
		err := x.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		x.lost(err)
		select {
		case <-ctx.Done():
		case <-time.After(xdsPause):
		}
	}
}

// lost logs why a stream ended: a line per error and minute, since it is tried each second.
func (x *xdsClient) lost(err error) {
	//mutant:lost-once-a-minute
	if !x.watcher.metrics.notices.first("discovery", err.Error()) {
		return
	}
	if x.watcher.now.Load() == nil {
		x.watcher.log.Warn("limits: the discovery service is away and there are none yet: requests are UNAVAILABLE", "error", err)
		return
	}
	x.watcher.log.Warn("limits: the discovery service is lost, the limits in use stay", "error", err)
}

// receive follows one stream until it ends. Responses are read also while an answer waits,
// so that mended limits wait for nothing; they take the place of those that had no answer.
func (x *xdsClient) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(x.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	responses, lost := make(chan *discovery.DiscoveryResponse), make(chan error, 1)
	go func() {
		for {
			resp, err := stream.Recv()
			if err != nil {
				lost <- err
				return
			}
			select {
			case responses <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	req := &discovery.DiscoveryRequest{Node: x.node, TypeUrl: limitsType}
	due := time.NewTimer(0)
	for {
		select {
		case err := <-lost:
			return err
		case resp := <-responses:
			due.Reset(x.use(resp, req))
		case <-due.C:
			if err := stream.Send(req); err != nil {
				return err
			}
			x.refused.sent(req.ErrorDetail != nil)
		}
	}
}

// use applies a response, makes req the answer to it, and returns how long that waits. What
// was refused is not parsed again.
func (x *xdsClient) use(resp *discovery.DiscoveryResponse, req *discovery.DiscoveryRequest) time.Duration {
	r := x.read(resp)
	sum := r.sum()
	err, seen := x.refused.seen[sum]
	if !seen {
		x.unknown(resp)
		err = x.watcher.use(r)
	}
	req.ResponseNonce, req.ErrorDetail = resp.GetNonce(), nil
	if err == nil {
		req.VersionInfo = resp.GetVersionInfo()
		x.refused = refusals{}
		return 0
	}
	if !seen && x.watcher.metrics.notices.first("refused", string(sum[:])) {
		x.watcher.refused(r, err)
	}
	req.ErrorDetail = &status.Status{Code: 3, Message: err.Error()} // version_info stays that of the limits in use
	return x.refused.wait(sum, err)
}

// unknown reports the fields of resources that this server does not have.
func (x *xdsClient) unknown(resp *discovery.DiscoveryResponse) {
	for _, any := range resp.GetResources() {
		config := &limitpb.RateLimitConfig{}
		if any.UnmarshalTo(config) == nil {
			unknown.All(config.ProtoReflect(), x.watcher.metrics.UnknownField)
		}
	}
}

// read returns resources as files, in the order of their names: JSON is YAML, if it has no
// character that YAML reads otherwise. One that is no resource stays as it is.
func (x *xdsClient) read(resp *discovery.DiscoveryResponse) reading {
	r := reading{source: "xds", version: resp.GetVersionInfo()}
	for _, any := range resp.GetResources() {
		config := &limitpb.RateLimitConfig{}
		err := any.UnmarshalTo(config)
		name, text := config.GetName(), any.GetValue()
		if err == nil {
			config.Name = ""
			text, err = compact(config)
		}
		r.err = cmp.Or(r.err, err)
		r.files = append(r.files, limits.File{Name: "xds:" + name, Data: ascii(text)})
	}
	slices.SortFunc(r.files, func(a, b limits.File) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Data, b.Data)) // a control plane keeps no order
	})
	return r
}

// compact returns a resource as JSON. What protojson writes has spaces in some builds, and a
// digest must not.
func compact(config *limitpb.RateLimitConfig) ([]byte, error) {
	var b bytes.Buffer
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
	if err == nil {
		err = json.Compact(&b, text)
	}
	return b.Bytes(), err
}

// ascii returns JSON with all other characters as escapes of YAML. YAML folds a line at some
// of them, and refuses others.
func ascii(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		switch {
		//mutant:escaped-for-yaml
		case r < 0x7f:
			b = append(b, byte(r))
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04X`, r)
		default:
			b = fmt.Appendf(b, `\U%08X`, r)
		}
	}
	return b
}
