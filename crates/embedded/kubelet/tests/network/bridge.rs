//! Bridges and the pods on them.

use quintet_kubelet::network::{Addresses, Bridge, Subnet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Pod, SERVER, ask};

#[tokio::test]
async fn pods_reach_each_other_and_the_node_reaches_them() {
    needs_root!();
    let subnet: Subnet = "10.213.77.0/24".parse().unwrap();
    let bridge = Bridge::open("qtest0", subnet).await.unwrap();
    // A second start takes what is there.
    let bridge_again = Bridge::open("qtest0", subnet).await.unwrap();
    let mut addresses = Addresses::new(subnet);
    let (a, b) = (addresses.assign("a").unwrap(), addresses.assign("b").unwrap());
    let server = Pod::start(&bridge, a).await;
    let client = Pod::start(&bridge_again, b).await;
    server.run("web", SERVER, "0.0.0.0").await;
    assert_eq!(ask(a).await, format!("{a}\n"));

    let script = format!("exec 3<>/dev/tcp/{a}/8080; cat <&3; cat /proc/net/route | wc -l");
    client.run("client", &format!("bash -c '{script}'"), "").await;
    let log = client.ended("client").await;
    assert!(log.contains(&format!("F {a}\n")), "{log}");

    client.run("local", SERVER, "127.0.0.1").await;
    let mut through = loop {
        if let Ok(stream) = client.shim.forward(8080).await {
            break stream;
        }
        tokio::task::yield_now().await;
    };
    let mut text = String::new();
    through.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "127.0.0.1\n");
    assert!(
        TcpStream::connect((b, 8080)).await.is_err(),
        "a server on loopback is not reached by the pod's address"
    );

    server.shim.shut_down().await.unwrap();
    client.shim.shut_down().await.unwrap();
    bridge.remove().await.unwrap();
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_cannot_be_forwarded() {
    needs_root!();
    let subnet: Subnet = "10.213.78.0/24".parse().unwrap();
    let bridge = Bridge::open("qtest1", subnet).await.unwrap();
    let pod = Pod::start(&bridge, [10, 213, 78, 2].into()).await;
    let error = pod.shim.forward(9).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    let mut unused = TcpStream::connect(("10.213.78.2", 9)).await;
    if let Ok(stream) = &mut unused {
        stream.shutdown().await.unwrap();
    }
    assert!(unused.is_err());
    pod.shim.shut_down().await.unwrap();
    bridge.remove().await.unwrap();
}
