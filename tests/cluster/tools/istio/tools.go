//go:build tools

// Package tools pins Istio's control plane, which configures the gateway of the tests.
package tools

import _ "istio.io/istio/pilot/cmd/pilot-discovery"
