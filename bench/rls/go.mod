module github.com/headgate-go/headgate/bench/rls

go 1.26.0

replace github.com/headgate-go/headgate => ../..

require github.com/envoyproxy/ratelimit v1.4.1-0.20260122083618-3fb702589d36 // indirect
