module github.com/headgate-go/headgate/policyfile

go 1.24

replace github.com/headgate-go/headgate => ../

require (
	github.com/headgate-go/headgate v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.12.0 // indirect
)
