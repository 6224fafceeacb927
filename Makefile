# Recipes for development and CI.
.PHONY: help build test conformance conformance-e2e differential upstream lint fmt deny docs bench crds

help: ## List the recipes
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

build: ## Build the program with optimizations
	cargo build --release

test: ## Run all tests
	cargo test --workspace

conformance: ## Run all cluster tests on Kubernetes and on the embedded API
	tests/conformance/everywhere

conformance-e2e: ## Run Kubernetes' own conformance specs on the embedded API
	tests/kubernetes/e2e

differential: ## Compare objects with Kubernetes' own packages on 50,000 random cases of each kind
	tests/kubernetes/differential/run 50000

upstream: ## Run the suites of KubeRay and Kueue against Quintet
	tests/upstream/kuberay/run
	tests/upstream/kueue/run

lint: ## Check format and lints, warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt --all

deny: ## Check licenses, bans and sources of dependencies
	cargo deny check bans licenses sources

docs: ## Build the documentation of all crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## Run the benchmarks
	cargo bench --workspace

crds: ## Print the CustomResourceDefinitions
	cargo run -q -- crds
