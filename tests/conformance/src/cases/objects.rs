//! Creating, reading and changing objects.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::World;

cases! { "objects":
    "a created object gets a uid, a time and a version" => created,
    "a name can be generated" => generated_name,
    "a second object of the same name is refused" => already_exists,
    "a missing object is named in the error" => not_found,
    "a bad name is refused with the rule" => bad_name,
    "names and namespaces must match the URL" => mismatch,
    "a body that is no object is refused" => bad_body,
    "a stale update is refused" => stale_update,
    "an update without version overwrites" => blind_update,
    "a write that changes nothing keeps the version" => no_op,
    "versions grow over all kinds" => one_counter,
    "system metadata cannot be forged" => forged_metadata,
    "a dry run stores nothing" => dry_run,
    "unknown fields are warned about, or refused when asked" => field_validation,
    "complaints about fields are in the order of the body" => complaints,
    "an unsupported option is refused" => bad_options,
    "creating in a namespace that is not there is refused" => no_namespace,
    "status is written through its subresource only" => status_subresource,
    "generation counts changes of the spec" => generation,
    "a scale can be read and written" => scale,
    "a body that is too large is refused" => too_large,
    "a version or a timeout that is none is refused" => bad_numbers,
    "an immutable ConfigMap stays as it is" => immutable,
    "a whole object has to say its name" => unnamed,
    "a path takes only the methods it is made for" => methods,
}

async fn created(world: World) -> anyhow::Result<()> {
    let object = world.create_config_map("a", &json!({ "k": "v" })).await?;
    let metadata = &object["metadata"];
    ensure!(object["kind"] == "ConfigMap" && object["apiVersion"] == "v1", "{object}");
    ensure!(metadata["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{metadata}");
    ensure!(
        metadata["creationTimestamp"].as_str().is_some_and(|time| time.ends_with('Z') && time.len() == 20),
        "{metadata}"
    );
    ensure!(
        metadata["resourceVersion"].as_str().is_some_and(|version| version.parse::<u64>().is_ok()),
        "{metadata}"
    );
    ensure!(metadata["namespace"] == world.namespace.as_str(), "{metadata}");
    ensure!(metadata.get("generation").is_none(), "a ConfigMap has no generation: {metadata}");
    let read = world.get(&world.core("configmaps/a")).await?.expect(200)?;
    ensure!(read == object, "{read} is not {object}");
    Ok(())
}

async fn generated_name(world: World) -> anyhow::Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "run-" } });
    let first = world.post(&world.core("configmaps"), &body).await?.expect(201)?;
    let second = world.post(&world.core("configmaps"), &body).await?.expect(201)?;
    let name = first["metadata"]["name"].as_str().unwrap_or_default();
    ensure!(name.starts_with("run-") && name.len() == 9, "{name}");
    ensure!(first["metadata"]["name"] != second["metadata"]["name"], "the same name twice");
    ensure!(first["metadata"]["generateName"] == "run-", "{first}");
    Ok(())
}

async fn already_exists(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let body = world.config_map("a", &json!({}));
    let answer = world.post(&world.core("configmaps"), &body).await?;
    let status = answer.expect_status(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    ensure!(status["details"] == json!({ "name": "a", "kind": "configmaps" }), "{status}");
    Ok(())
}

async fn not_found(world: World) -> anyhow::Result<()> {
    let answer = world.get(&world.path("apps/v1", "deployments/nope")).await?;
    let status = answer.expect_status(404, "NotFound", "deployments.apps \"nope\" not found")?;
    ensure!(
        status["details"] == json!({ "name": "nope", "group": "apps", "kind": "deployments" }),
        "{status}"
    );
    Ok(())
}

async fn bad_name(world: World) -> anyhow::Result<()> {
    let answer = world.post(&world.core("configmaps"), &world.config_map("Bad_Name", &json!({}))).await?;
    let message = "ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain";
    let status = answer.expect_status(422, "Invalid", message)?;
    ensure!(status["details"]["causes"][0]["field"] == "metadata.name", "{status}");
    ensure!(status["details"]["kind"] == "ConfigMap", "{status}");
    Ok(())
}

async fn mismatch(world: World) -> anyhow::Result<()> {
    let mut body = world.config_map("a", &json!({}));
    body["metadata"]["namespace"] = json!("elsewhere");
    let answer = world.post(&world.core("configmaps"), &body).await?;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    answer.expect_status(400, "BadRequest", message)?;
    world.create_config_map("a", &json!({})).await?;
    let answer = world.put(&world.core("configmaps/a"), &world.config_map("b", &json!({}))).await?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_status(400, "BadRequest", message)?;
    Ok(())
}

async fn bad_body(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps");
    let json_type = [("content-type", "application/json")];
    for body in ["", "{", "[]", "\u{0}"] {
        let answer = world.send("POST", &path, &json_type, body).await?;
        ensure!(
            answer.code == 400 && answer.body["kind"] == "Status",
            "{body:?}: {} {}",
            answer.code,
            answer.text
        );
    }
    let answer = world.send("POST", &path, &[("content-type", "text/plain")], "hello").await?;
    answer.expect_status(415, "UnsupportedMediaType", "the body of the request was in an unknown format")?;
    let wrong =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": 1 } });
    let answer = world.post(&path, &wrong).await?;
    answer.expect_status(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap",
    )?;
    Ok(())
}

async fn stale_update(world: World) -> anyhow::Result<()> {
    let first = world.create_config_map("a", &json!({})).await?;
    let mut second = first.clone();
    second["data"] = json!({ "k": "1" });
    world.put(&world.core("configmaps/a"), &second).await?.expect(200)?;
    let answer = world.put(&world.core("configmaps/a"), &first).await?;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again";
    answer.expect_status(409, "Conflict", message)?;
    Ok(())
}

async fn blind_update(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1" })).await?;
    let body = world.config_map("a", &json!({ "l": "2" }));
    let updated = world.put(&world.core("configmaps/a"), &body).await?.expect(200)?;
    ensure!(updated["data"] == json!({ "l": "2" }), "{updated}");
    Ok(())
}

async fn no_op(world: World) -> anyhow::Result<()> {
    let first = world.create_config_map("a", &json!({ "k": "1" })).await?;
    let again = world.put(&world.core("configmaps/a"), &first).await?.expect(200)?;
    ensure!(again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], "{again}");
    let patch = json!({ "data": { "k": "1" } });
    let patched = world.patch(&world.core("configmaps/a"), "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], "{patched}");
    Ok(())
}

async fn one_counter(world: World) -> anyhow::Result<()> {
    let version = |object: &serde_json::Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or_default()
    };
    let first = world.create_config_map("a", &json!({})).await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    let second = world.post(&world.core("secrets"), &secret).await?.expect(201)?;
    let third = world.create_config_map("b", &json!({})).await?;
    ensure!(
        version(&first) < version(&second) && version(&second) < version(&third),
        "{first} {second} {third}"
    );
    Ok(())
}

async fn forged_metadata(world: World) -> anyhow::Result<()> {
    let mut body = world.config_map("a", &json!({}));
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let made = world.post(&world.core("configmaps"), &body).await?.expect(201)?;
    ensure!(made["metadata"]["uid"] != body["metadata"]["uid"], "{made}");
    ensure!(made["metadata"]["creationTimestamp"] != body["metadata"]["creationTimestamp"], "{made}");
    ensure!(made["metadata"].get("deletionTimestamp").is_none(), "{made}");
    let mut other = made.clone();
    other["metadata"]["uid"] = body["metadata"]["uid"].clone();
    let answer = world.put(&world.core("configmaps/a"), &other).await?;
    answer.expect_status(409, "Conflict", "Precondition failed: UID in precondition")?;
    Ok(())
}

async fn dry_run(world: World) -> anyhow::Result<()> {
    let path = format!("{}?dryRun=All", world.core("configmaps"));
    let made = world.post(&path, &world.config_map("a", &json!({}))).await?.expect(201)?;
    ensure!(
        made["metadata"]["uid"].is_string() && made["metadata"].get("resourceVersion").is_none(),
        "{made}"
    );
    world.get(&world.core("configmaps/a")).await?.expect(404)?;
    let object = world.create_config_map("b", &json!({})).await?;
    world.delete(&format!("{}?dryRun=All", world.core("configmaps/b")), None).await?.expect(200)?;
    ensure!(
        world.get(&world.core("configmaps/b")).await?.expect(200)? == object,
        "a dry run changed something"
    );
    Ok(())
}

async fn field_validation(world: World) -> anyhow::Result<()> {
    let mut body = world.config_map("a", &json!({}));
    body["bogus"] = json!(1);
    let answer = world.post(&world.core("configmaps"), &body).await?;
    let warning =
        answer.headers.get("warning").and_then(|text| text.to_str().ok()).unwrap_or_default().to_owned();
    ensure!(warning == "299 - \"unknown field \\\"bogus\\\"\"", "warning {warning}");
    answer.expect(201)?;
    let strict = format!("{}?fieldValidation=Strict", world.core("configmaps"));
    body["metadata"]["name"] = json!("b");
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bogus\"";
    world.post(&strict, &body).await?.expect_status(400, "BadRequest", message)?;
    let ignored = format!("{}?fieldValidation=Ignore", world.core("configmaps"));
    let answer = world.post(&ignored, &body).await?;
    ensure!(answer.headers.get("warning").is_none(), "a warning although asked not to");
    ensure!(answer.expect(201)?.get("bogus").is_none(), "an unknown field was kept");
    let duplicate = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","name":"d"}}"#;
    let answer = world.send("POST", &strict, &[("content-type", "application/json")], duplicate).await?;
    answer.expect_status(400, "BadRequest", "duplicate field \"metadata.name\"")?;
    Ok(())
}

async fn complaints(world: World) -> anyhow::Result<()> {
    let path = format!("{}?fieldValidation=Strict", world.path("apps/v1", "deployments"));
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
        "spec":{"zzz":1,"replicas":2,"replicas":3,"aaa":1}}"#;
    let answer = world.send("POST", &path, &[("content-type", "application/json")], body).await?;
    let message = r#"strict decoding error: unknown field "spec.zzz", duplicate field "spec.replicas", unknown field "spec.aaa""#;
    answer.expect_status(400, "BadRequest", message)?;
    let path = format!("{}?fieldValidation=Strict", world.core("configmaps"));
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: b\nbogus: 1\n";
    let answer = world.send("POST", &path, &[("content-type", "application/yaml")], body).await?;
    let message = "line 5: key \"name\" already set in map, unknown field \"bogus\"";
    answer.expect_status(400, "BadRequest", message)?;
    world.create_config_map("c", &json!({})).await?;
    let path = format!("{}?fieldValidation=Strict", world.core("configmaps/c"));
    let body = r#"{"data":{"a":"1","a":"2"}}"#;
    let answer =
        world.send("PATCH", &path, &[("content-type", "application/merge-patch+json")], body).await?;
    answer.expect_status(422, "Invalid", "strict decoding error: duplicate field \"data.a\"")?;
    Ok(())
}

async fn bad_options(world: World) -> anyhow::Result<()> {
    let body = world.config_map("a", &json!({}));
    let answer = world.post(&format!("{}?dryRun=Bogus", world.core("configmaps")), &body).await?;
    answer.expect_status(
        422,
        "Invalid",
        "dryRun: Unsupported value: [\"Bogus\"]: supported values: \"All\"",
    )?;
    let answer = world.post(&format!("{}?fieldValidation=X", world.core("configmaps")), &body).await?;
    let message =
        "fieldValidation: Unsupported value: \"X\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    answer.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn no_namespace(world: World) -> anyhow::Result<()> {
    let name = format!("absent-{}", world.unique);
    let body = world.config_map("a", &json!({}));
    let answer = world.post(&format!("/api/v1/namespaces/{name}/configmaps"), &body).await?;
    answer.expect_status(404, "NotFound", &format!("namespaces \"{name}\" not found"))?;
    Ok(())
}

fn deployment(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "example.invalid/none:1" }] },
            },
        },
    })
}

async fn status_subresource(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "p" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Lost" },
    });
    let made = world.post(&world.core("persistentvolumeclaims"), &body).await?.expect(201)?;
    ensure!(made["status"]["phase"] == "Pending", "{made}");
    let patch =
        json!({ "spec": { "storageClassName": "other" }, "status": { "capacity": { "storage": "2Gi" } } });
    let path = world.core("persistentvolumeclaims/p/status");
    let patched = world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["status"]["capacity"]["storage"] == "2Gi", "{patched}");
    ensure!(patched["spec"]["storageClassName"] == "none", "status wrote the spec: {patched}");
    Ok(())
}

async fn generation(world: World) -> anyhow::Result<()> {
    let path = world.path("apps/v1", "deployments");
    let made = world.post(&path, &deployment("d")).await?.expect(201)?;
    ensure!(made["metadata"]["generation"] == 1, "{made}");
    let one = format!("{path}/d");
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    let same = world.patch(&one, "merge-patch+json", &labelled).await?.expect(200)?;
    ensure!(same["metadata"]["generation"] == 1, "{same}");
    let paused = json!({ "spec": { "paused": true } });
    let next = world.patch(&one, "merge-patch+json", &paused).await?.expect(200)?;
    ensure!(next["metadata"]["generation"] == 2, "{next}");
    Ok(())
}

async fn scale(world: World) -> anyhow::Result<()> {
    let path = world.path("apps/v1", "deployments");
    world.post(&path, &deployment("d")).await?.expect(201)?;
    let scale = world.get(&format!("{path}/d/scale")).await?.expect(200)?;
    ensure!(scale["kind"] == "Scale" && scale["apiVersion"] == "autoscaling/v1", "{scale}");
    ensure!(scale["status"]["selector"] == "app=d", "{scale}");
    let patch = json!({ "spec": { "replicas": 0 } });
    world.patch(&format!("{path}/d/scale"), "merge-patch+json", &patch).await?.expect(200)?;
    let patch = json!({ "spec": { "replicas": -1 } });
    world.patch(&format!("{path}/d/scale"), "merge-patch+json", &patch).await?.expect(422)?;
    Ok(())
}

async fn too_large(world: World) -> anyhow::Result<()> {
    let body = world.config_map("a", &json!({ "k": "x".repeat(1024 * 1024 + 1) }));
    let answer = world.post(&world.core("configmaps"), &body).await?;
    answer.expect_status(422, "Invalid", "Too long: may not be more than 1048576 bytes")?;
    let body = world.config_map("a", &json!({ "k": "x".repeat(4 * 1024 * 1024) }));
    let answer = world.post(&world.core("configmaps"), &body).await?;
    ensure!(answer.code == 413, "{} {}", answer.code, answer.text);
    Ok(())
}

async fn immutable(world: World) -> anyhow::Result<()> {
    let mut body = world.config_map("a", &json!({ "k": "1" }));
    body["immutable"] = json!(true);
    world.post(&world.core("configmaps"), &body).await?.expect(201)?;
    let patch = json!({ "data": { "k": "2" } });
    let answer = world.patch(&world.core("configmaps/a"), "merge-patch+json", &patch).await?;
    answer.expect_status(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")?;
    Ok(())
}

async fn unnamed(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v" } });
    let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
    world.put(&world.core("configmaps/a"), &body).await?.expect_status(400, "BadRequest", message)?;
    let message = "the name of the object (b based on URL) was undeterminable: name must be provided";
    let answer = world.apply(&world.core("configmaps/b"), "tester", false, &body).await?;
    answer.expect_status(400, "BadRequest", message)?;
    world.apply(&world.core("configmaps/a"), "tester", false, &body).await?.expect(200)?;
    Ok(())
}

async fn methods(world: World) -> anyhow::Result<()> {
    let message = "the server does not allow this method on the requested resource";
    let collection = world.core("configmaps");
    let body = world.config_map("a", &json!({}));
    world.put(&collection, &body).await?.expect_status(405, "MethodNotAllowed", message)?;
    let answer = world.patch(&collection, "merge-patch+json", &body).await?;
    answer.expect_status(405, "MethodNotAllowed", message)?;
    let answer = world.post(&format!("{collection}/a"), &body).await?;
    answer.expect_status(405, "MethodNotAllowed", message)?;
    let answer = world.post("/api/v1/configmaps", &body).await?;
    answer.expect_status(405, "MethodNotAllowed", message)?;
    let answer = world.get("/api/v1/configmaps/a").await?;
    answer.expect_status(404, "NotFound", "the server could not find the requested resource")?;
    Ok(())
}

async fn bad_numbers(world: World) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{}", world.namespace);
    let message =
        r#"resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#;
    world.get(&format!("{path}?resourceVersion=abc")).await?.expect_status(500, "", message)?;
    let message = r#"invalid timeout specified in the request URL - time: invalid duration "soon""#;
    world.get(&format!("{path}?timeout=soon")).await?.expect_status(400, "BadRequest", message)?;
    // Any version is one that the server has seen: of an object this young it may have seen none.
    world.get("/api/v1/namespaces/default?timeout=0s&resourceVersion=0").await?.expect(200).map(drop)
}
