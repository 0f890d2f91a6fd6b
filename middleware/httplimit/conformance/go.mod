module github.com/headgate-go/headgate/middleware/httplimit/conformance

go 1.25.0

replace github.com/headgate-go/headgate => ../../..

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
