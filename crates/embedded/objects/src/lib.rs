//! What can be done with a Kubernetes object without a server: schemas, patches, apply, CEL, protobuf, tables.
