//! Quotas under load: what does not fit is refused, whoever else asks at the same time.
#![expect(clippy::disallowed_methods, reason = "tasks of a test or benchmark end with it")]

mod support;

use serde_json::json;
use support::{api, eventually, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/q";

fn quota(most: usize) -> serde_json::Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": most.to_string()}}})
}

async fn used(api: &quintet_apiserver::Api) -> String {
    let quota = send(api, "GET", QUOTA, None).await.expect(200);
    quota["status"]["used"]["configmaps"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creates_never_exceed_a_quota() {
    let api = api().await;
    let before = api.store().count("core/configmaps");
    let own = send(&api, "GET", MAPS, None).await.expect(200)["items"].as_array().unwrap().len();
    send(&api, "POST", "/api/v1/namespaces/default/resourcequotas", quota(own + 10)).await.expect(201);
    for round in 0..20 {
        let tasks: Vec<_> = (0..16)
            .map(|number| {
                let api = api.clone();
                tokio::spawn(async move {
                    let name = format!("m{round}-{number}");
                    send(&api, "POST", MAPS, json!({"metadata": {"name": name}})).await.code
                })
            })
            .collect();
        let mut codes = Vec::new();
        for task in tasks {
            codes.push(task.await.unwrap());
        }
        let created = codes.iter().filter(|code| **code == 201).count();
        assert_eq!(created, 10, "round {round}: {codes:?}");
        assert!(codes.iter().all(|code| matches!(code, 201 | 403)), "{codes:?}");
        assert_eq!(used(&api).await, (own + 10).to_string(), "the quota is full");
        send(&api, "DELETE", &format!("{MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt"), None)
            .await
            .expect(200);
        eventually(async || used(&api).await == own.to_string()).await;
    }
    assert_eq!(api.store().count("core/configmaps"), before);
}

#[tokio::test]
async fn a_failed_create_releases_its_quota() {
    let api = api().await;
    send(&api, "POST", MAPS, json!({"metadata": {"name": "taken"}})).await.expect(201);
    let own = send(&api, "GET", MAPS, None).await.expect(200)["items"].as_array().unwrap().len();
    send(&api, "POST", "/api/v1/namespaces/default/resourcequotas", quota(own + 1)).await.expect(201);
    send(&api, "POST", MAPS, json!({"metadata": {"name": "taken"}})).await.expect(409);
    eventually(async || used(&api).await == own.to_string()).await;
    send(&api, "POST", &format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "dry"}})).await.expect(201);
    send(&api, "POST", MAPS, json!({"metadata": {"name": "last"}})).await.expect(201);
    let refused = send(&api, "POST", MAPS, json!({"metadata": {"name": "more"}})).await;
    let message = format!(
        "configmaps \"more\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps={0}, limited: configmaps={0}",
        own + 1
    );
    assert_eq!((refused.code, refused.message()), (403, message.as_str()));
}
