use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use quintet_controller::ObjectKey;
use serde_json::{Value, json};

use super::super::services::ServiceView;
use super::*;

fn set(zone: &mut Zone, key: (&str, &str), spec: &Value, endpoints: &Value) {
    let service: Service = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "name": "s" }, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    }))
    .unwrap();
    zone.set_service(&ObjectKey::new(key.0, key.1), ServiceView::new(&service, [&slice]));
}

fn zone() -> Zone {
    let mut zone = Zone::new(vec!["10.96.0.0/16".parse().unwrap(), "10.244.0.0/16".parse().unwrap()]);
    zone.set_namespace("team", true);
    let ports = json!([{ "name": "http", "port": 80, "protocol": "TCP" }]);
    let endpoints = json!([
        { "addresses": ["10.244.0.2"], "hostname": "db-0" },
        { "addresses": ["10.244.0.3"], "hostname": "db-1", "conditions": { "ready": false } },
        { "addresses": ["10.244.0.4"] },
    ]);
    set(&mut zone, ("team", "web"), &json!({ "clusterIP": "10.96.1.1", "ports": ports }), &json!([]));
    set(&mut zone, ("team", "db"), &json!({ "clusterIP": "None", "ports": ports }), &endpoints);
    let all = json!({ "clusterIP": "None", "ports": ports, "publishNotReadyAddresses": true });
    set(&mut zone, ("team", "all"), &all, &endpoints);
    set(&mut zone, ("team", "empty"), &json!({ "clusterIP": "None", "ports": ports }), &json!([]));
    let external = |target: &str| json!({ "type": "ExternalName", "externalName": target });
    set(&mut zone, ("team", "ext"), &external("Example.COM."), &json!([]));
    set(&mut zone, ("team", "near"), &external("web.team.svc.cluster.local"), &json!([]));
    set(&mut zone, ("team", "loop"), &external("loop.team.svc.cluster.local"), &json!([]));
    zone
}

/// `record, record; additional` or the kind of answer.
fn says(name: &str, kind: u16) -> String {
    let text = |records: Vec<Record>| {
        let data = |record: Record| match record.data {
            Data::A(address) => format!("A {address}"),
            Data::Aaaa(address) => format!("AAAA {address}"),
            Data::Cname(name) => format!("CNAME {name}"),
            Data::Ns(name) => format!("NS {name}"),
            Data::Ptr(name) => format!("PTR {name}"),
            Data::Txt(text) => format!("TXT {text}"),
            Data::Srv { port, target } => format!("SRV {port} {target}"),
            Data::Soa { server, .. } => format!("SOA {server}"),
        };
        records.into_iter().map(data).collect::<Vec<_>>().join(", ")
    };
    match answer(name, kind, &zone()) {
        Answer::Records(answers, additionals) if additionals.is_empty() => text(answers),
        Answer::Records(answers, additionals) => format!("{}; {}", text(answers), text(additionals)),
        Answer::Alias(record, target) => format!("{} to {target}", text(vec![record])),
        Answer::NoSuchName => "NXDOMAIN".into(),
        Answer::Foreign => "others".into(),
    }
}

#[test]
fn names_have_the_records_of_the_specification() {
    use types::{A, AAAA, ANY, CNAME, NS, PTR, SOA, SRV, TXT};
    let cases = [
        // A Service has its cluster IP, and nothing for IPv6: no error, so that the search path ends here.
        ("web.team.svc.cluster.local", A, "A 10.96.1.1"),
        ("web.team.svc.cluster.local", AAAA, ""),
        ("web.team.svc.cluster.local", ANY, "A 10.96.1.1"),
        ("web.team.svc.cluster.local", SRV, "SRV 80 web.team.svc.cluster.local; A 10.96.1.1"),
        ("_http._tcp.web.team.svc.cluster.local", SRV, "SRV 80 web.team.svc.cluster.local; A 10.96.1.1"),
        ("_http._tcp.web.team.svc.cluster.local", A, ""),
        ("_http._udp.web.team.svc.cluster.local", SRV, "NXDOMAIN"),
        ("_none._tcp.web.team.svc.cluster.local", SRV, "NXDOMAIN"),
        ("_tcp.web.team.svc.cluster.local", SRV, "NXDOMAIN"),
        // A headless one has its ready endpoints, by host name or by address.
        ("db.team.svc.cluster.local", A, "A 10.244.0.2, A 10.244.0.4"),
        ("all.team.svc.cluster.local", A, "A 10.244.0.2, A 10.244.0.3, A 10.244.0.4"),
        ("db-0.db.team.svc.cluster.local", A, "A 10.244.0.2"),
        ("db-0.db.team.svc.cluster.local", AAAA, ""),
        ("db-1.db.team.svc.cluster.local", A, "NXDOMAIN"),
        ("db-1.all.team.svc.cluster.local", A, "A 10.244.0.3"),
        ("10-244-0-4.db.team.svc.cluster.local", A, "A 10.244.0.4"),
        (
            "_http._tcp.db.team.svc.cluster.local",
            SRV,
            "SRV 8080 db-0.db.team.svc.cluster.local, SRV 8080 10-244-0-4.db.team.svc.cluster.local; \
             A 10.244.0.4, A 10.244.0.2",
        ),
        ("empty.team.svc.cluster.local", A, ""),
        ("missing.team.svc.cluster.local", A, "NXDOMAIN"),
        ("x.y.z.web.team.svc.cluster.local", A, "NXDOMAIN"),
        // Aliases.
        ("ext.team.svc.cluster.local", A, "CNAME example.com to example.com"),
        ("ext.team.svc.cluster.local", CNAME, "CNAME example.com to example.com"),
        ("sub.ext.team.svc.cluster.local", A, "NXDOMAIN"),
        // Names in between exist without records.
        ("team.svc.cluster.local", A, ""),
        ("other.svc.cluster.local", A, "NXDOMAIN"),
        ("svc.cluster.local", A, ""),
        ("cluster.local", A, ""),
        ("cluster.local", NS, "NS ns.dns.cluster.local"),
        ("cluster.local", SOA, "SOA ns.dns.cluster.local"),
        ("dns-version.cluster.local", TXT, "TXT 1.1.0"),
        ("web.cluster.local", A, "NXDOMAIN"),
        // Pods.
        ("10-244-0-9.team.pod.cluster.local", A, "A 10.244.0.9"),
        ("10-244-0-9.other.pod.cluster.local", A, "NXDOMAIN"),
        ("name.team.pod.cluster.local", A, "NXDOMAIN"),
        // Addresses: ours are known or do not exist, others are others'.
        ("1.1.96.10.in-addr.arpa", PTR, "PTR web.team.svc.cluster.local"),
        ("1.1.96.10.in-addr.arpa", A, ""),
        (
            "2.0.244.10.in-addr.arpa",
            PTR,
            "PTR db-0.all.team.svc.cluster.local, PTR db-0.db.team.svc.cluster.local",
        ),
        ("9.9.96.10.in-addr.arpa", PTR, "NXDOMAIN"),
        ("1.2.0.192.in-addr.arpa", PTR, "others"),
        ("example.com", A, "others"),
        ("notcluster.local", A, "others"),
        ("", NS, "others"),
    ];
    for (name, kind, expected) in cases {
        assert_eq!(says(name, kind), expected, "{name} {kind}");
    }
}

#[test]
fn a_zone_follows_changes() {
    let mut zone = zone();
    let key = ObjectKey::new("team", "web");
    let before = authority(&zone);
    zone.set_service(&key, None);
    assert_eq!(answer("web.team.svc.cluster.local", types::A, &zone), Answer::NoSuchName);
    assert_eq!(answer("1.1.96.10.in-addr.arpa", types::PTR, &zone), Answer::NoSuchName);
    assert_ne!(authority(&zone), before, "the serial number changes");
    // An address that two Services lead to keeps the name of the other.
    zone.set_service(&ObjectKey::new("team", "db"), None);
    let Answer::Records(names, _) = answer("2.0.244.10.in-addr.arpa", types::PTR, &zone) else { panic!() };
    assert_eq!(names.len(), 1);
    zone.set_namespace("team", false);
    assert_eq!(answer("team.svc.cluster.local", types::A, &zone), Answer::NoSuchName);
}

/// A query, with the identifier 7 and recursion desired; `edns` is the size of responses over UDP.
fn query(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    if let Some(size) = edns {
        message.extend_from_slice(&[0, 0, 41]);
        message.extend_from_slice(&size.to_be_bytes());
        message.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
    }
    message
}

fn server(zone: Zone, resolv_conf: &Path) -> NameServer {
    NameServer::new(
        Arc::new(RwLock::new(zone)),
        resolv_conf,
        Vec::new(),
        HostSockets::default(),
        CancellationToken::new(),
    )
}

fn response(server: &NameServer, message: &[u8]) -> Option<Vec<u8>> {
    match server.first(message) {
        First::Response(response) => Some(response),
        First::Nothing | First::Later(_) => None,
    }
}

fn code(response: &[u8]) -> u8 {
    response[3] & 0x0F
}

fn count(response: &[u8], section: usize) -> u16 {
    u16::from_be_bytes([response[4 + 2 * section], response[5 + 2 * section]])
}

#[test]
fn the_question_comes_back_in_the_case_of_the_client() {
    let server = server(zone(), Path::new("/nonexistent"));
    let message = query("WEB.Team.svc.CLUSTER.local", types::A, None);
    let response = response(&server, &message).unwrap();
    assert_eq!(response[..2], [0, 7]);
    assert_eq!(response[2..4], [0x85, 0x80], "a response, authoritative, recursion desired and available");
    assert_eq!(response[12..message.len()], message[12..]);
    // One answer: a pointer to the question, A, IN, 30 seconds, four bytes.
    assert_eq!(
        response[message.len()..],
        [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 96, 1, 1],
        "{response:?}"
    );
}

#[test]
fn negative_answers_differ_and_name_the_authority() {
    let server = server(zone(), Path::new("/nonexistent"));
    let missing = response(&server, &query("nope.team.svc.cluster.local", types::A, None)).unwrap();
    assert_eq!((code(&missing), count(&missing, 1), count(&missing, 2)), (3, 0, 1));
    let no_data = response(&server, &query("web.team.svc.cluster.local", types::AAAA, None)).unwrap();
    assert_eq!((code(&no_data), count(&no_data, 1), count(&no_data, 2)), (0, 0, 1));
}

#[test]
fn long_responses_are_cut_to_what_the_client_takes() {
    let mut zone = zone();
    let endpoints: Vec<Value> =
        (2..=101).map(|number| json!({ "addresses": [format!("10.244.1.{number}")] })).collect();
    set(&mut zone, ("team", "big"), &json!({ "clusterIP": "None" }), &json!(endpoints));
    let server = server(zone, Path::new("/nonexistent"));
    let name = "big.team.svc.cluster.local";
    let cut = |edns: Option<u16>| {
        let message = query(name, types::A, edns);
        let response = response(&server, &message).unwrap();
        (response.len(), count(&response, 1), response[2] & 0x02 != 0, count(&response, 3))
    };
    let (length, answers, is_cut, _) = cut(None);
    assert!(length <= 512 && is_cut && (20..100).contains(&answers), "{length} {answers}");
    let (length, answers, is_cut, additional) = cut(Some(4096));
    assert!(length <= 1232 && is_cut && answers > 60 && additional == 1, "{length} {answers}");
    // Over TCP there is room for all.
    let message = query(name, types::A, None);
    let First::Response(whole) = server.first_within(&message, usize::from(u16::MAX)) else { panic!() };
    assert_eq!((count(&whole, 1), whole[2] & 0x02), (100, 0));
    assert!(message::addresses_in(&whole).iter().all(|record| record.name == name));
}

#[test]
fn malformed_messages_are_refused_or_ignored() {
    let server = server(zone(), Path::new("/nonexistent"));
    let good = query("web.team.svc.cluster.local", types::A, Some(1232));
    assert_eq!(response(&server, &[]), None);
    assert_eq!(response(&server, &good[..11]), None, "not even a header");
    let changed = |position: usize, byte: u8| {
        let mut message = good.clone();
        message[position] = byte;
        response(&server, &message)
    };
    assert_eq!(
        changed(2, 0x81),
        None,
        "a response is not answered: servers would talk to each other without end"
    );
    assert_eq!(code(&changed(2, 0x29).unwrap()), 4, "an operation that is not a query");
    assert_eq!(code(&changed(5, 2).unwrap()), 1, "two questions");
    assert_eq!(code(&changed(11, 9).unwrap()), 1, "records that are missing");
    assert_eq!(code(&changed(12, 0x80).unwrap()), 1, "a label of an unknown form");
    assert_eq!(code(&response(&server, &good[..20]).unwrap()), 1, "a name without an end");
    // A name that points to itself.
    let mut circle = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, 12, 0, 1, 0, 1];
    assert_eq!(code(&response(&server, &circle).unwrap()), 1);
    circle[13] = 200;
    assert_eq!(code(&response(&server, &circle).unwrap()), 1);
    // Version 1 of EDNS does not exist.
    let version = good.len() - 5;
    let response = changed(version, 1).unwrap();
    let opt = response.len() - 11;
    assert_eq!((code(&response), response[opt + 5]), (0, 1), "BADVERS is in the EDNS record: {response:?}");
}

#[tokio::test]
async fn without_name_servers_other_names_fail() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf");
    std::fs::write(&path, "search x\n").unwrap();
    let server = server(zone(), &path);
    let message = query("example.com", types::A, None);
    let First::Later(parsed) = server.first(&message) else { panic!() };
    let response = server.ask_others(&parsed, &message, false).await;
    assert_eq!((code(&response), response[..2].to_vec()), (2, vec![0, 7]));
}

#[tokio::test]
async fn aliases_are_followed_for_clients_that_cannot() {
    let server = server(zone(), Path::new("/nonexistent"));
    let message = query("near.team.svc.cluster.local", types::A, None);
    let First::Later(parsed) = server.first(&message) else { panic!() };
    let response = server.ask_others(&parsed, &message, false).await;
    let records: Vec<Data> = message::addresses_in(&response).into_iter().map(|record| record.data).collect();
    assert_eq!(records, [Data::Cname("web.team.svc.cluster.local".into()), Data::A([10, 96, 1, 1].into())]);
    assert_eq!(server.lookup("near.team.svc.cluster.local").await, Some(vec![[10, 96, 1, 1].into()]));
    assert_eq!(server.lookup("example.com").await, None);
    // An alias of itself ends.
    assert_eq!(server.lookup("loop.team.svc.cluster.local").await, Some(Vec::new()));
}
