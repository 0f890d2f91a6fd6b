package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/internal/file"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// limitsType is the resource that has the limits of a domain.
const limitsType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// xdsPause is how long the server waits before it connects again.
const xdsPause = time.Second

// xdsClient receives limits by Envoy's discovery protocol, state of the world. Each
// resource is a file to the parser: what is refused, and what a domain means, is the same.
type xdsClient struct {
	watcher *watcher
	conn    *grpc.ClientConn
	node    string
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
	conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("-xds: %w", err)
	}
	return &xdsClient{w, conn, s.xdsNode}, nil
}

// follow receives limits until ctx ends. Without the other side those in use stay.
func (x *xdsClient) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := x.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		x.watcher.log.Warn("limits: the discovery service is lost, the limits in use stay", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(xdsPause):
		}
	}
}

// receive follows one stream until it ends.
func (x *xdsClient) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(x.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	req := &discovery.DiscoveryRequest{Node: &core.Node{Id: x.node}, TypeUrl: limitsType}
	for {
		if err := stream.Send(req); err != nil {
			return err
		}
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		req.ResponseNonce, req.ErrorDetail = resp.GetNonce(), nil
		if err := x.watcher.use(filesOf(resp.GetResources())); err != nil { // version_info stays that of the limits in use
			req.ErrorDetail = &status.Status{Code: 3, Message: err.Error()}
			continue
		}
		req.VersionInfo = resp.GetVersionInfo()
	}
}

// filesOf returns resources as files: JSON is YAML.
func filesOf(resources []*anypb.Any) (r reading) {
	for _, any := range resources {
		config := &limitpb.RateLimitConfig{}
		if err := any.UnmarshalTo(config); err != nil {
			return reading{err: err}
		}
		name := config.GetName()
		config.Name = ""
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
		if err != nil {
			return reading{err: err}
		}
		r.files = append(r.files, limits.File{Name: "xds:" + name, Data: text})
	}
	return r
}
