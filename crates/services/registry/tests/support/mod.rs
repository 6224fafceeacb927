//! Servers and a client for tests.

pub(crate) mod http;
pub(crate) mod mariadb;
pub(crate) mod postgres;
pub(crate) mod server;
