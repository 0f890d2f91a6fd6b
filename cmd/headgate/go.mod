module github.com/headgate-go/headgate/cmd/headgate

go 1.25.0

replace github.com/headgate-go/headgate => ../../

replace github.com/headgate-go/headgate/policyfile => ../../policyfile

replace github.com/headgate-go/headgate/backend/postgres => ../../backend/postgres

require (
	github.com/headgate-go/headgate v0.0.0-00010101000000-000000000000
	github.com/headgate-go/headgate/backend/postgres v0.0.0-00010101000000-000000000000
	github.com/headgate-go/headgate/policyfile v0.0.0-00010101000000-000000000000
	github.com/jackc/pgx/v5 v5.9.2
	github.com/klauspost/compress v1.18.4
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.17.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	golang.org/x/text v0.29.0 // indirect
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
