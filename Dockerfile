# The image of the operator: one static program, without a shell, run by a user that is not root.
#
#   docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) --tag quintet:0.1.0 .
#
# The image of the collector of Ray's history, for spec.historyServerOptions of RayClusters:
#
#   docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) --target collector --tag quintet-collector:0.1.0 .

# The version of rust-toolchain.toml. On Alpine, Rust links statically with musl.
FROM rust:1.95.0-alpine AS build
# A C compiler, make and headers, for the allocator and for cryptography. Alpine removes old versions, so none are pinned.
# hadolint ignore=DL3018
RUN apk add --no-cache build-base linux-headers
WORKDIR /source
COPY . .
# An argument, because the context has no .git.
ARG COMMIT=unknown
RUN QUINTET_COMMIT=$COMMIT cargo build --profile dist --locked --package quintet
# KubeRay's manifests call the submitter by a path of its own.
RUN install -D target/dist/quintet /image/usr/bin/quintet \
    && ln -s /usr/bin/quintet /image/submitter \
    && /image/usr/bin/quintet --version

# The operator adds the collector without a command. Its user is that of Ray's images, whose files it reads and moves.
FROM scratch AS collector
COPY --from=build /image/ /
USER 1000:1000
ENTRYPOINT ["/usr/bin/quintet", "collector"]

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/usr/bin/quintet"]
CMD ["operator"]
