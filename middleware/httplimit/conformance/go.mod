module github.com/headgate-go/headgate/middleware/httplimit/conformance

go 1.25.0

replace github.com/headgate-go/headgate => ../../..

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
