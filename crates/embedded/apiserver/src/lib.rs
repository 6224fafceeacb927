//! The embedded Kubernetes API: storage, watch, requests, admission, custom resources, authentication, RBAC.
