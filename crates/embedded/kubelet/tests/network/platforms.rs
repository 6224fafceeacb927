//! What a platform changes on the machine, and several platforms on one machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use quintet_kubelet::network::rootless::Placement;
use quintet_kubelet::network::{Bridge, Network, Settings};
use serde_json::json;

use crate::support::{Pod, SERVER, alone, apply, eventually, interfaces, network, text_of};

#[tokio::test]
async fn a_restarted_network_finds_the_addresses_of_its_pods_and_clear_leaves_nothing() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (_api, first) = network(data.path()).await;
    let (pod, pid) = Pod::unconnected().await;
    let address = first.attach(pid, "uid-1").await.unwrap();
    assert_eq!(first.adopt("uid-1"), Some(address));
    first.stop().await;

    let (_api, second) = network(data.path()).await;
    assert_eq!((second.adopt("uid-1"), second.adopt("other")), (Some(address), None));
    let subnet = |network: &Network| network.bridge().unwrap().subnet();
    assert_eq!(subnet(&second), subnet(&first));
    second.detach("uid-1").await.unwrap();
    assert_eq!(second.adopt("uid-1"), None);
    let other = second.attach(pid, "uid-2").await.unwrap();
    assert_ne!(other, address, "a freed address is not reused soon");
    second.stop().await;
    let (bridge, during) = (second.bridge().unwrap().name().to_owned(), interfaces());

    Network::clear(data.path()).await.unwrap();
    // Other tests have networks at the same time: ours are the bridge and one pair of interfaces.
    let ours = [bridge, format!("q{:x}", other.to_bits())];
    assert!(ours.iter().all(|name| during.contains(name)), "{ours:?} of {during:?}");
    let after = interfaces();
    assert!(!ours.iter().any(|name| after.contains(name)), "{ours:?} of {after:?}");
    Network::clear(data.path()).await.unwrap();
    pod.shim.shut_down().await.unwrap();
}

#[tokio::test]
async fn two_platforms_have_networks_of_their_own() {
    needs_root!();
    let _alone = alone().await;
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((_a, first), (_b, second)) = tokio::join!(network(one.path()), network(two.path()));
    assert_ne!(first.bridge().unwrap().subnet(), second.bridge().unwrap().subnet());
    assert_eq!(first.cluster_dns(), Ipv4Addr::new(10, 96, 0, 10));
    first.stop().await;
    Network::clear(one.path()).await.unwrap();
    // The route to cluster IPs is shared with the platform that still runs.
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap();
    assert!(routes.contains("10.96.0.0"), "{routes}");
    second.stop().await;
    Network::clear(two.path()).await.unwrap();
}

#[tokio::test]
async fn two_platforms_serve_the_same_cluster_ip_to_their_own_pods() {
    needs_root!();
    let _alone = alone().await;
    let mut platforms = Vec::new();
    for name in ["one", "two"] {
        let data = tempfile::tempdir().unwrap();
        let (api, network) = network(data.path()).await;
        let (server, address) = Pod::of(&network, "server").await;
        server.run("web", SERVER, "0.0.0.0").await;
        let (client, _) = Pod::of(&network, "client").await;
        let spec = json!({ "clusterIP": "10.96.0.200", "ports": [{ "port": 80, "targetPort": 8080 }] });
        apply(&api, name, &spec, &json!([{ "addresses": [address] }]), &json!([{ "port": 8080 }])).await;
        eventually(async || {
            text_of(SocketAddr::new(address.into(), 8080)).await.map_err(|error| error.to_string())
        })
        .await;
        platforms.push((data, api, network, server, client, address));
    }
    for (_, _, _, _, client, address) in &platforms {
        let script =
            "for i in $(seq 50); do exec 3<>/dev/tcp/10.96.0.200/80 && break; sleep 0.1; done; cat <&3";
        let text = client.output("ask", &format!("bash -c '{script}' 2>/dev/null"), "").await;
        assert_eq!(text.trim(), address.to_string());
    }
    // The machine itself reaches the first.
    let cluster_ip: SocketAddr = ([10, 96, 0, 200], 80).into();
    assert_eq!(text_of(cluster_ip).await.unwrap(), platforms[0].5.to_string());
    for (data, _, network, server, client, _) in platforms {
        network.stop().await;
        Network::clear(data.path()).await.unwrap();
        server.shim.shut_down().await.unwrap();
        client.shim.shut_down().await.unwrap();
    }
}

#[tokio::test]
async fn pods_reach_other_machines_which_do_not_reach_pods() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (_api, network) = network(data.path()).await;
    assert_eq!(network.limitations(), [""; 0]);
    let (pod, address) = Pod::of(&network, "pod").await;
    // Another machine, on a network of its own with this one.
    let wire = Bridge::open("qtest2", "10.213.80.0/24".parse().unwrap()).await.unwrap();
    let machine = Pod::start(&wire, [10, 213, 80, 2].into()).await;
    let server = SERVER.replace("sockhost", "peerhost");
    for host in [&machine, &pod] {
        host.run("web", &server, "0.0.0.0").await;
    }
    for host in [[10, 213, 80, 2].into(), address] {
        eventually(async || {
            text_of(SocketAddr::new(host.into(), 8080)).await.map_err(|error| error.to_string())
        })
        .await;
    }
    let ask =
        |host: &str| format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{host}/8080 && cat <&3' || echo failed");
    let seen = pod.output("out", &ask("10.213.80.2"), "").await;
    assert_eq!(seen, "10.213.80.1\n", "the other machine sees the address of this one");
    let seen = machine.output("in", &ask(&address.to_string()), "").await;
    assert_eq!(seen, "failed\n");
    network.stop().await;
    Network::clear(data.path()).await.unwrap();
    wire.remove().await.unwrap();
}

#[tokio::test]
async fn without_namespaces_services_are_served_on_loopback() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let api = quintet_apiserver::Api::in_memory(&[]).await.unwrap();
    let placement = Placement::HostNetwork { why: "this machine does not allow user namespaces".into() };
    let settings = Settings { placement, ..Settings::new(data.path(), "node") };
    let network = Network::start(api.admin_client(), settings).await.unwrap();
    assert!(network.is_shared());
    assert!(
        network.limitations()[0].contains("only one of them can listen at a port"),
        "{:?}",
        network.limitations()
    );
    assert_eq!(network.cluster_dns(), Ipv4Addr::new(127, 96, 0, 10));
    let address = network.attach(std::process::id(), "pod").await.unwrap();
    assert_eq!((network.adopt("pod"), network.node_address()), (Some(address), address));
    let server = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
    let port = server.local_addr().unwrap().port();
    let spec = json!({ "clusterIP": "10.96.0.201", "ports": [{ "port": 8080 }] });
    apply(&api, "web", &spec, &json!([{ "addresses": [address] }]), &json!([{ "port": port }])).await;
    let served = SocketAddr::new(network.service_address([10, 96, 0, 201].into()).into(), 8080);
    assert_eq!(served.to_string(), "127.96.0.201:8080");
    let client = async || tokio::net::TcpStream::connect(served).await.map_err(|error| error.to_string());
    let (_client, _server) = (eventually(client).await, server.accept().await.unwrap());
    let found = network.lookup("web.default.svc.cluster.local").await.unwrap();
    assert_eq!(found, [Ipv4Addr::new(127, 96, 0, 201)]);
    network.stop().await;
    Network::clear(data.path()).await.unwrap();
}
