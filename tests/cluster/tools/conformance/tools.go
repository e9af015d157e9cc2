//go:build tools

// Package tools pins the conformance suite of the Gateway API Inference Extension, its picker and its backend.
package tools

import (
	_ "sigs.k8s.io/gateway-api-inference-extension/cmd/lwepp"
	_ "sigs.k8s.io/gateway-api-inference-extension/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
