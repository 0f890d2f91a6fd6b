package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/unknown"
	"github.com/headgate-go/headgate/internal/file"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// limitsType is the resource that has the limits of a domain.
const limitsType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// xdsPause is how long the server waits before it connects again, and before it refuses the
// same resources for the second time. That pause doubles up to maxXDSPause: a control plane
// sends what was refused again at once.
const (
	xdsPause    = time.Second
	maxXDSPause = 30 * time.Second
)

// xdsClient receives limits by Envoy's discovery protocol, state of the world. Each
// resource is a file to the parser: what is refused, and what a domain means, is the same.
type xdsClient struct {
	watcher *watcher
	conn    *grpc.ClientConn
	node    *core.Node
	headers metadata.MD
	refused refusal // the goroutine's that follows
}

// refusal is what was refused last.
type refusal struct {
	err   error // nil: nothing
	sum   [sha256.Size]byte
	pause time.Duration // before it is refused again
}

// openXDS does no I/O but to read certificates.
func (s *settings) openXDS(w *watcher) (*xdsClient, error) {
	creds := insecure.NewCredentials()
	if s.xdsTLS || s.xdsCA != "" || s.xdsCert != "" {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.xdsName}
		var err error
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
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.xdsMaxMessage)))
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
	due := time.After(0)
	for {
		select {
		case err := <-lost:
			return err
		case resp := <-responses:
			due = time.After(x.use(resp, req))
		case <-due:
			if err := stream.Send(req); err != nil {
				return err
			}
		}
	}
}

// use applies a response, makes req the answer to it, and returns after which pause to send
// that. What was refused is not read again.
func (x *xdsClient) use(resp *discovery.DiscoveryResponse, req *discovery.DiscoveryRequest) time.Duration {
	sum := sumOf(resp.GetResources())
	//mutant:refused-again-after-a-pause
	if x.refused.err != nil && x.refused.sum == sum {
		x.refused.pause = min(max(2*x.refused.pause, xdsPause), maxXDSPause)
	} else {
		x.refused = refusal{sum: sum, err: x.watcher.use(x.read(resp))}
	}
	req.ResponseNonce, req.ErrorDetail = resp.GetNonce(), nil
	if x.refused.err != nil { // version_info stays that of the limits in use
		req.ErrorDetail = &status.Status{Code: 3, Message: x.refused.err.Error()}
	} else {
		req.VersionInfo = resp.GetVersionInfo()
	}
	return x.refused.pause
}

// sumOf returns a digest of resources, whose order a control plane does not keep.
func sumOf(resources []*anypb.Any) [sha256.Size]byte {
	var sums [][]byte
	for _, r := range resources {
		sum := sha256.Sum256(append([]byte(r.GetTypeUrl()+"\n"), r.GetValue()...))
		sums = append(sums, sum[:])
	}
	slices.SortFunc(sums, bytes.Compare)
	return sha256.Sum256(bytes.Join(sums, nil))
}

// read returns resources as files, in the order of their names: JSON is YAML.
func (x *xdsClient) read(resp *discovery.DiscoveryResponse) reading {
	r := reading{source: "xds", version: resp.GetVersionInfo()}
	for _, any := range resp.GetResources() {
		config := &limitpb.RateLimitConfig{}
		if r.err = any.UnmarshalTo(config); r.err != nil {
			return r
		}
		unknown.All(config.ProtoReflect(), x.watcher.metrics.UnknownField)
		name := config.GetName()
		config.Name = ""
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
		if r.err = err; err != nil {
			return r
		}
		r.files = append(r.files, limits.File{Name: "xds:" + name, Data: text})
	}
	slices.SortStableFunc(r.files, func(a, b limits.File) int { return cmp.Compare(a.Name, b.Name) })
	return r
}
