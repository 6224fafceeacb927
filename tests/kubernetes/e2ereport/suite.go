//go:build suite

package main

// The suite is built as a test of its own package; this keeps its dependencies in go.mod.
import _ "k8s.io/kubernetes/test/e2e"
