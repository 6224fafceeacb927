# The recipes people and CI use; nothing is hidden behind them.
.PHONY: help build test conformance differential lint fmt deny docs bench crds

help: ## Show the recipes
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## Build the program, optimised
	cargo build --release

test: ## Run all tests
	cargo test --workspace

conformance: ## Everything that wants a cluster, on a real Kubernetes and on the embedded API
	tests/conformance/everywhere

differential: ## Compare objects with Kubernetes' own packages on 50,000 random cases of each kind
	tests/kubernetes/differential/run 50000

lint: ## Check format and lints, warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt --all

deny: ## Check licences, bans and sources of dependencies
	cargo deny check bans licenses sources

docs: ## Build the documentation of all crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## Run the benchmarks
	cargo bench --workspace

crds: ## Print the CustomResourceDefinitions
	cargo run -q -- crds
