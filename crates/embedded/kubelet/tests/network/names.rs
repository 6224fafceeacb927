//! Names as programs in pods resolve them, by the C library.

use std::path::Path;

use k8s_openapi::api::core::v1 as core;
use kube::api::Api;
use quintet_kubelet::network::{Network, Settings};
use quintet_kubelet::pod::names::Resolver;
use serde_json::json;
use tokio::net::UdpSocket;

use crate::support::{Pod, alone, apply, cluster_ip, eventually, network};

/// `resolv.conf` of a pod of namespace `default`.
fn resolv_conf(network: &Network) -> String {
    let pod = json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": { "containers": [] } });
    let pod: core::Pod = serde_json::from_value(pod).unwrap();
    network.resolv_conf(&pod, &Resolver::default())
}

#[tokio::test]
async fn programs_in_pods_resolve_services_by_short_and_long_names() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let (pod, address) = Pod::of(&network, "client").await;
    let ports = json!([{ "port": 80 }]);
    let web = apply(&api, "web", &json!({ "ports": ports }), &json!([]), &ports).await;
    let endpoints = json!([{ "addresses": [address], "hostname": "db-0" }]);
    apply(&api, "db", &json!({ "clusterIP": "None", "ports": ports }), &endpoints, &ports).await;
    let alias = json!({ "type": "ExternalName", "externalName": "web.default.svc.cluster.local" });
    apply(&api, "alias", &alias, &json!([]), &ports).await;
    eventually(async || {
        network
            .lookup("alias.default.svc.cluster.local")
            .await
            .filter(|found| !found.is_empty())
            .ok_or_else(|| "none".to_owned())
    })
    .await;

    let names = "web web.default web.default.svc.cluster.local. db db-0.db alias kubernetes \
        kube-dns.kube-system missing web.other 10-1-2-3.default.pod.cluster.local";
    let script = format!(
        "for name in {names}; do echo $name $(getent ahostsv4 $name | cut -d\" \" -f1 | sort -u); done; \
         getent hosts {}",
        cluster_ip(&web)
    );
    let output = pod.output("names", &script, &resolv_conf(&network)).await;
    let expected = format!(
        "web {web}\nweb.default {web}\nweb.default.svc.cluster.local. {web}\ndb {address}\ndb-0.db {address}\n\
         alias {web}\nkubernetes 10.96.0.1\nkube-dns.kube-system 10.96.0.10\nmissing\nweb.other\n\
         10-1-2-3.default.pod.cluster.local 10.1.2.3\n",
        web = cluster_ip(&web)
    );
    let (forward, reverse) = output.split_at(expected.len().min(output.len()));
    assert_eq!(forward, expected);
    let words: Vec<&str> = reverse.split_whitespace().collect();
    assert_eq!(words, [cluster_ip(&web).to_string().as_str(), "web.default.svc.cluster.local"]);
    // Programs of the machine have them too.
    assert_eq!(network.lookup("db-0.db.default.svc.cluster.local").await, Some(vec![address]));
    assert_eq!(network.lookup("example.com").await, None);

    network.stop().await;
    Network::clear(data.path()).await.unwrap();
    pod.shim.shut_down().await.unwrap();
}

#[tokio::test]
async fn other_names_are_asked_of_the_name_servers_of_the_machine() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("resolv.conf");
    // A name server of the machine that knows one name.
    let upstream = UdpSocket::bind("127.77.0.53:53").await.unwrap();
    std::fs::write(&file, "nameserver 127.77.0.53\n").unwrap();
    let api = quintet_apiserver::Api::in_memory(&[]).await.unwrap();
    let settings = Settings { resolv_conf: Some(file), ..Settings::new(data.path(), "node") };
    let network = Network::start(api.admin_client(), settings).await.unwrap();
    let (pod, _) = Pod::of(&network, "client").await;
    let answer = async {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = upstream.recv_from(&mut buffer).await.unwrap();
            let mut response = buffer[..length].to_vec();
            // The question alone, then an address for it; without the records that came with the question.
            let end = 12 + response[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let is_address = response[end - 4..end - 2] == [0, 1];
            response.truncate(end);
            response[2] |= 0x80;
            response[6..12].copy_from_slice(&[0, u8::from(is_address), 0, 0, 0, 0]);
            if is_address {
                response.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 99]);
            }
            upstream.send_to(&response, from).await.unwrap();
        }
    };
    let script = "getent ahostsv4 www.example.com | cut -d\" \" -f1 | sort -u";
    let resolv_conf = resolv_conf(&network);
    let output = tokio::select! {
        output = pod.output("other", script, &resolv_conf) => output,
        () = answer => unreachable!(),
    };
    assert_eq!(output, "192.0.2.99\n");
    network.stop().await;
    Network::clear(data.path()).await.unwrap();
    pod.shim.shut_down().await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_asked_for_during_a_restart_is_resolved_after_it() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let (pod, _) = Pod::of(&network, "client").await;
    let resolv_conf = format!("{}options timeout:1 attempts:20\n", resolv_conf(&network));
    network.stop().await;
    let (asked, restarted) =
        tokio::join!(pod.output("asks", "getent hosts kubernetes", &resolv_conf), async {
            eventually(async || {
                pod.awaits_a_name().then_some(()).ok_or_else(|| "it asks nothing".to_owned())
            })
            .await;
            Network::start(api.admin_client(), Settings::new(data.path(), "node")).await.unwrap()
        });
    assert!(asked.starts_with("10.96.0.1 "), "{asked:?}");
    restarted.stop().await;
    Network::clear(data.path()).await.unwrap();
    pod.shim.shut_down().await.unwrap();
}

#[tokio::test]
async fn the_name_server_is_a_service_where_users_expect_it() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(Path::new(data.path())).await;
    let services: Api<core::Service> = Api::namespaced(api.admin_client(), "kube-system");
    let spec = services.get("kube-dns").await.unwrap().spec.unwrap();
    assert_eq!(spec.cluster_ip.unwrap(), network.cluster_dns().to_string());
    let ports: Vec<_> = spec.ports.unwrap().into_iter().map(|port| (port.name.unwrap(), port.port)).collect();
    assert_eq!(ports, [("dns".to_owned(), 53), ("dns-tcp".to_owned(), 53)]);
    network.stop().await;
    Network::clear(data.path()).await.unwrap();
}
