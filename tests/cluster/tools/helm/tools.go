//go:build tools

// Package tools pins helm, which the tests of the charts run.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
