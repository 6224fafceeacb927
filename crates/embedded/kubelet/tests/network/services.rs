//! Services with real connections. Endpoints are pods and sockets of this machine.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use quintet_kubelet::network::Network;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::{Pod, SERVER, alone, apply, cluster_ip, delete, eventually, network, text_of};

async fn end(data: &tempfile::TempDir, network: &Network, pods: &[&Pod]) {
    network.stop().await;
    Network::clear(data.path()).await.unwrap();
    for pod in pods {
        pod.shim.shut_down().await.unwrap();
    }
}

#[tokio::test]
async fn a_service_is_reached_from_pods_and_from_the_machine_while_it_has_endpoints() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let (one, first) = Pod::of(&network, "one").await;
    let (two, second) = Pod::of(&network, "two").await;
    let (client, _) = Pod::of(&network, "client").await;
    for (pod, address) in [(&one, first), (&two, second)] {
        pod.run("web", SERVER, "0.0.0.0").await;
        let direct = SocketAddr::new(address.into(), 8080);
        eventually(async || text_of(direct).await.map_err(|error| error.to_string())).await;
    }
    let ports = json!([{ "name": "http", "port": 8080 }]);
    let spec = json!({ "type": "NodePort", "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    let both = json!([{ "addresses": [first] }, { "addresses": [second] }]);
    let service = apply(&api, "web", &spec, &both, &ports).await;
    let address = SocketAddr::new(cluster_ip(&service).into(), 80);
    let node_port = service.spec.unwrap().ports.unwrap()[0].node_port.unwrap();
    let node_port = u16::try_from(node_port).unwrap();

    let expected = BTreeSet::from([first.to_string(), second.to_string()]);
    let on_node = SocketAddr::new(network.node_address().into(), node_port);
    for address in [address, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), node_port), on_node] {
        eventually(async || text_of(address).await.map_err(|error| error.to_string())).await;
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            seen.insert(text_of(address).await.unwrap());
        }
        assert_eq!(seen, expected, "{address}");
    }
    // From a pod, and from an endpoint itself.
    for pod in [&client, &one] {
        let script = format!("exec 3<>/dev/tcp/{}/80; cat <&3", address.ip());
        let ask = format!("for i in 1 2; do bash -c '{script}'; done");
        let text = pod.output("ask", &ask, "").await;
        let seen: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(seen, expected);
    }
    let unknown = SocketAddr::new(address.ip(), 81);
    assert_eq!(text_of(unknown).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);

    apply(&api, "web", &spec, &json!([{ "addresses": [second] }]), &ports).await;
    eventually(async || {
        let answers = [text_of(address).await.unwrap(), text_of(address).await.unwrap()];
        answers
            .iter()
            .all(|answer| *answer == second.to_string())
            .then_some(())
            .ok_or_else(|| format!("{answers:?}"))
    })
    .await;
    let starting = json!([{ "addresses": [second], "conditions": { "ready": false, "serving": false } }]);
    apply(&api, "web", &spec, &starting, &ports).await;
    let refused = async || match text_of(address).await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        outcome => Err(format!("{outcome:?}")),
    };
    eventually(refused).await;
    apply(&api, "web", &spec, &both, &ports).await;
    eventually(async || text_of(address).await.map_err(|error| error.to_string())).await;
    delete(&api, "web").await;
    eventually(refused).await;
    end(&data, &network, &[&one, &two, &client]).await;
}

#[tokio::test]
async fn half_closed_connections_go_on_and_open_ones_outlive_their_service() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let endpoint = TcpListener::bind((network.node_address(), 0)).await.unwrap();
    let port = endpoint.local_addr().unwrap().port();
    let spec = json!({ "ports": [{ "port": 80 }] });
    let endpoints = json!([{ "addresses": [network.node_address()] }]);
    let service = apply(&api, "half", &spec, &endpoints, &json!([{ "port": port }])).await;
    let address = SocketAddr::new(cluster_ip(&service).into(), 80);
    let mut client =
        eventually(async || TcpStream::connect(address).await.map_err(|error| error.to_string())).await;
    let (mut server, _) = endpoint.accept().await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    // The other direction is still open, and stays so when the Service is gone.
    delete(&api, "half").await;
    eventually(async || match TcpStream::connect(address).await {
        Ok(_) => Err("still there".to_owned()),
        Err(_) => Ok(()),
    })
    .await;
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    end(&data, &network, &[]).await;
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_passed_over() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let endpoint = TcpListener::bind((network.node_address(), 0)).await.unwrap();
    let port = endpoint.local_addr().unwrap().port();
    // The other address is one of this machine where no server listens.
    let endpoints = json!([{ "addresses": ["10.96.0.250"] }, { "addresses": [network.node_address()] }]);
    let service =
        apply(&api, "picky", &json!({ "ports": [{ "port": 80 }] }), &endpoints, &json!([{ "port": port }]))
            .await;
    let address = SocketAddr::new(cluster_ip(&service).into(), 80);
    for _ in 0..4 {
        let connect = async || TcpStream::connect(address).await.map_err(|error| error.to_string());
        let mut client = eventually(connect).await;
        let (mut server, _) = endpoint.accept().await.unwrap();
        server.write_all(b"here").await.unwrap();
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "here");
    }
    end(&data, &network, &[]).await;
}

#[tokio::test]
async fn datagrams_find_an_endpoint_and_the_way_back() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let (client, _) = Pod::of(&network, "client").await;
    let one = UdpSocket::bind((network.node_address(), 0)).await.unwrap();
    let port = one.local_addr().unwrap().port();
    let spec = json!({ "ports": [{ "port": 53, "protocol": "UDP" }] });
    let endpoints = json!([{ "addresses": [network.node_address()] }]);
    let service = apply(&api, "udp", &spec, &endpoints, &json!([{ "port": port, "protocol": "UDP" }])).await;
    let address = cluster_ip(&service);
    let echo = async {
        let mut buffer = [0; 100];
        loop {
            let (length, from) = one.recv_from(&mut buffer).await.unwrap();
            one.send_to(&buffer[..length].to_ascii_uppercase(), from).await.unwrap();
        }
    };
    let from_machine = async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        eventually(async || {
            // Refused until the Service is served.
            socket.connect((address, 53)).await.map_err(|error| error.to_string())?;
            socket.send(b"hello").await.map_err(|error| error.to_string())?;
            let mut buffer = [0; 100];
            let wait = std::time::Duration::from_millis(300);
            let received = tokio::time::timeout(wait, socket.recv(&mut buffer)).await;
            let length = received.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
        .await
    };
    let from_pod = format!(
        "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(PeerAddr => \"{address}:53\", Proto => \"udp\") or die; \
         for (1..3) {{ $s->send(\"ping$_\"); $s->recv($a, 100); print \"$a\\n\" }}'"
    );
    let both = async { (from_machine.await, client.output("ping", &from_pod, "").await) };
    let (machine, pod) = tokio::select! {
        answers = both => answers,
        () = echo => unreachable!(),
    };
    assert_eq!((machine.as_str(), pod.as_str()), ("HELLO", "PING1\nPING2\nPING3\n"));
    end(&data, &network, &[&client]).await;
}

#[tokio::test]
async fn a_client_with_session_affinity_stays_with_its_endpoint() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let (one, first) = Pod::of(&network, "one").await;
    let (two, second) = Pod::of(&network, "two").await;
    for (pod, address) in [(&one, first), (&two, second)] {
        pod.run("web", SERVER, "0.0.0.0").await;
        let direct = SocketAddr::new(address.into(), 8080);
        eventually(async || text_of(direct).await.map_err(|error| error.to_string())).await;
    }
    let spec = json!({ "sessionAffinity": "ClientIP", "ports": [{ "port": 80 }] });
    let endpoints = json!([{ "addresses": [first] }, { "addresses": [second] }]);
    let service = apply(&api, "sticky", &spec, &endpoints, &json!([{ "port": 8080 }])).await;
    let address = SocketAddr::new(cluster_ip(&service).into(), 80);
    eventually(async || text_of(address).await.map_err(|error| error.to_string())).await;
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        seen.insert(text_of(address).await.unwrap());
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    end(&data, &network, &[&one, &two]).await;
}

#[tokio::test]
async fn a_node_port_that_is_taken_is_reported_on_the_service_and_opened_when_it_is_free() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (api, network) = network(data.path()).await;
    let endpoint = TcpListener::bind((network.node_address(), 0)).await.unwrap();
    let port = endpoint.local_addr().unwrap().port();
    // Of the range of node ports, whichever is free on this machine.
    let mut taken = None;
    for port in 30_100..32_000 {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            taken = Some((listener, port));
            break;
        }
    }
    let (other, node_port) = taken.unwrap();
    let spec = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": node_port }] });
    let endpoints = json!([{ "addresses": [network.node_address()] }]);
    apply(&api, "taken", &spec, &endpoints, &json!([{ "port": port }])).await;
    let events: Api<Event> = Api::namespaced(api.admin_client(), "default");
    let event = eventually(async || {
        let found = events.list(&ListParams::default()).await.unwrap().items;
        let about = |event: &Event| event.reason.as_deref() == Some("FailedToOpenPort");
        found.into_iter().find(about).ok_or_else(|| "no event".to_owned())
    })
    .await;
    let message = event.message.unwrap();
    let expected =
        format!("cannot listen at 127.0.0.1:{node_port} (TCP): Address already in use (os error 98); ");
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(event.involved_object.name.as_deref(), Some("taken"));
    drop(other);
    let address = SocketAddr::from(([127, 0, 0, 1], node_port));
    eventually(async || TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string())).await;
    end(&data, &network, &[]).await;
}

#[tokio::test]
async fn pods_reach_the_api_by_the_service_of_its_name() {
    needs_root!();
    let _alone = alone().await;
    let data = tempfile::tempdir().unwrap();
    let (_api, network) = network(data.path()).await;
    let (client, _) = Pod::of(&network, "client").await;
    // The API of this test says that it listens at 127.0.0.1:6443; something has to.
    let listener = match TcpListener::bind("127.0.0.1:6443").await {
        Ok(listener) => Some(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
        Err(error) => panic!("{error}"),
    };
    let script = "exec 3<>/dev/tcp/10.96.0.1/443 && echo connected";
    let text = client.output("api", &format!("bash -c '{script}'"), "").await;
    assert_eq!(text, "connected\n");
    drop(listener);
    end(&data, &network, &[&client]).await;
}
