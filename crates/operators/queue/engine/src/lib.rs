//! Scheduling decisions of the queue as a pure library: no I/O, no clock, no Kubernetes client.
