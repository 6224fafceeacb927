use serde_json::{Value, json};

use super::*;

fn sources() -> Sources {
    let read = |value: Value| serde_json::from_value(value).unwrap();
    let references = References {
        config_maps: [(
            "settings".to_owned(),
            read(json!({ "data": { "a": "1", "b": "2" }, "binaryData": { "c": "AAE=" } })),
        )]
        .into(),
        secrets: [(
            "login".to_owned(),
            serde_json::from_value(json!({ "data": { "user": "bWU=" } })).unwrap(),
        )]
        .into(),
        ..References::default()
    };
    let request = TokenRequest { audience: String::new(), expiration_seconds: 3607 };
    Sources { references, tokens: [(request, "token".to_owned())].into() }
}

fn pod(volume: Value) -> core::Pod {
    let metadata = json!({ "name": "p", "namespace": "team", "labels": { "app": "web" } });
    let spec = json!({ "containers": [{ "name": "c", "resources": { "limits": { "cpu": "2" } } }], "volumes": [volume] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn of(mut volume: Value) -> Result<Content, String> {
    volume["name"] = json!("v");
    let pod = pod(volume);
    let volume = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0].clone();
    content(&pod, &volume, &sources()).map_err(|error| error.to_string())
}

fn files(volume: Value) -> BTreeMap<String, (String, u32)> {
    let Content::Files(files) = of(volume).unwrap() else { unreachable!("files were expected") };
    let text = |file: FileContent| (String::from_utf8_lossy(&file.bytes).into_owned(), file.mode);
    files.into_iter().map(|(path, file)| (path.display().to_string(), text(file))).collect()
}

fn expect<const N: usize>(entries: [(&str, &str, u32); N]) -> BTreeMap<String, (String, u32)> {
    entries.map(|(path, text, mode)| (path.to_owned(), (text.to_owned(), mode))).into()
}

#[test]
fn keys_become_files() {
    let all = files(json!({ "configMap": { "name": "settings" } }));
    assert_eq!(all, expect([("a", "1", 0o644), ("b", "2", 0o644), ("c", "\0\u{1}", 0o644)]));
    let some = json!({ "secret": { "secretName": "login", "defaultMode": 0o400, "items": [{ "key": "user", "path": "x/y", "mode": 0o600 }] } });
    assert_eq!(files(some), expect([("x/y", "me", 0o600)]));
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        (json!({ "configMap": { "name": "absent" } }), "configmap \"absent\" not found"),
        (json!({ "secret": { "secretName": "absent" } }), "secret \"absent\" not found"),
        (
            json!({ "configMap": { "name": "settings", "items": [{ "key": "x", "path": "x" }] } }),
            "references non-existent config key: x",
        ),
        (
            json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } }),
            "failed to fetch token: it was not issued yet",
        ),
    ];
    for (volume, why) in cases {
        assert_eq!(of(volume), Err(format!("MountVolume.SetUp failed for volume \"v\" : {why}")));
    }
    assert_eq!(files(json!({ "configMap": { "name": "absent", "optional": true } })), expect([]));
}

#[test]
fn projected_sources_share_a_directory() {
    let found = files(json!({ "projected": { "defaultMode": 0o640, "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
        { "configMap": { "name": "settings", "items": [{ "key": "a", "path": "a" }] } },
        { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
    ]}}));
    let expected = [("a", "1", 0o640), ("labels", "app=\"web\"", 0o640), ("token", "token", 0o640)];
    assert_eq!(found, expect(expected));
}

#[test]
fn resources_of_containers_can_be_files() {
    let item =
        json!({ "path": "cpu", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu" } });
    assert_eq!(files(json!({ "downwardAPI": { "items": [item] } })), expect([("cpu", "2", 0o644)]));
}

#[test]
fn other_volumes() {
    assert_eq!(of(json!({ "emptyDir": {} })), Ok(Content::Empty(None)));
    assert_eq!(
        of(json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } })),
        Ok(Content::Memory(Some(64 << 20)))
    );
    let claim = |name: &str, is_read_only| Ok(Content::Claim { name: name.into(), is_read_only });
    assert_eq!(
        of(json!({ "persistentVolumeClaim": { "claimName": "data", "readOnly": true } })),
        claim("data", true)
    );
    assert_eq!(of(json!({ "ephemeral": { "volumeClaimTemplate": { "spec": {} } } })), claim("p-v", false));
    let host = Content::Host { path: "/srv".into(), kind: "Directory".into() };
    assert_eq!(of(json!({ "hostPath": { "path": "/srv", "type": "Directory" } })), Ok(host));
    assert!(of(json!({ "nfs": { "server": "s", "path": "/" } })).is_err());
}

#[test]
fn tokens_that_a_pod_needs_are_listed() {
    let pod = pod(json!({ "name": "v", "projected": { "sources": [
        { "serviceAccountToken": { "path": "t", "audience": "vault", "expirationSeconds": 600 } },
        { "serviceAccountToken": { "path": "u" } },
    ]}}));
    let expected = [("vault", 600), ("", 3600)]
        .map(|(audience, expiration_seconds)| TokenRequest { audience: audience.into(), expiration_seconds });
    assert_eq!(token_requests(&pod), expected);
}
