//! The network of pods: a bridge on the machine, and for every pod an address and a pair of interfaces.

mod addresses;
mod bridge;

pub use addresses::{Addresses, NoAddressLeft, Subnet};
pub use bridge::{Bridge, NetworkError};
