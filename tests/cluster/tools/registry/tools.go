//go:build tools

// Package tools pins the OCI registry that the tests of the charts push to.
package tools

import _ "github.com/distribution/distribution/v3/cmd/registry"
