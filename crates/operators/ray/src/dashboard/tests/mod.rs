mod client;
mod polling;
mod simulation;

use super::*;

pub(super) fn address(host: &str, token_secret: Option<&str>) -> Address {
    Address {
        host: host.to_owned(),
        namespace: "ns".to_owned(),
        service: "head".to_owned(),
        token_secret: token_secret.map(str::to_owned),
    }
}
