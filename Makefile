# Recipes for development and CI.
# No recipe makes a file of its name.
.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST))

help: ## List the recipes
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

build: ## Build the program with optimizations
	cargo build --release

test: ## Run all tests
	cargo test --workspace

platform: ## Run all platform tests with real Ray and MLflow, also those that take minutes
	QUINTET_PLATFORM_SLOW=1 cargo test -p quintet --test platform

simulations: simulation-ray simulation-queue simulation-codeflare simulation-mlflow simulation-registry ## Run each operator in 1,000 simulated worlds with faults

simulation-ray:
	QUINTET_SEEDS=1000 cargo test --release -p quintet-ray-tests --test simulation

simulation-%:
	QUINTET_SEEDS=1000 cargo test --release -p quintet-$* --test simulation

conformance: ## Run all cluster tests on Kubernetes and on the embedded API
	tests/conformance/everywhere

conformance-e2e: ## Run Kubernetes' own conformance specs on the embedded API
	tests/kubernetes/e2e

differential: ## Compare objects with Kubernetes' own packages on 50,000 random cases of each kind
	tests/kubernetes/differential/run 50000

upstream: ## Run the suites of KubeRay and Kueue against Quintet
	tests/upstream/kuberay/run
	tests/upstream/kuberay/exchange
	tests/upstream/kueue/run

platform-faults: ## Kill `quintet up` 50 times under a RayJob
	QUINTET_PLATFORM_KILLS=50 cargo test -p quintet --test platform -- crashes::

platform-numbers: build ## Measure start, RayJobs, pods, memory and idle CPU of `quintet up`
	tests/platform/numbers $${CARGO_TARGET_DIR:-target}/release/quintet

platform-pending: build ## Measure queues of `quintet up` in which 100,000 Workloads wait
	tests/platform/pending $${CARGO_TARGET_DIR:-target}/release/quintet

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
