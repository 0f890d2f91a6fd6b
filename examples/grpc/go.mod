module github.com/headgate-go/headgate/examples/grpc

go 1.24.0

replace (
	github.com/headgate-go/headgate => ../..
	github.com/headgate-go/headgate/middleware/grpclimit => ../../middleware/grpclimit
)

require (
	github.com/headgate-go/headgate v0.0.0-00010101000000-000000000000
	github.com/headgate-go/headgate/middleware/grpclimit v0.0.0-00010101000000-000000000000
	google.golang.org/grpc v1.80.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sync v0.19.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260120221211-b8f7ae30c516 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
