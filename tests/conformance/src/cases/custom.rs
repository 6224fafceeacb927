//! Custom resources: from their definition to their end.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::world::repeat;
use crate::{Answer, World};

cases! { "custom":
    "a definition is established and served" => established,
    "unknown fields are pruned and defaults filled in" => pruned_and_defaulted,
    "the schema is kept, with a message per field" => validated,
    "CEL rules are kept, on change too" => rules,
    "a rule of the whole object is told without a path" => root_rule,
    "a rule that reads what is missing says so" => missing_key,
    "what is neither a number nor a text is told for each alternative" => neither_number_nor_text,
    "an object inside an object needs a type" => embedded_type,
    "clients of a deprecated version are warned, also if they are refused" => deprecated,
    "what was wrong before may stay as it is" => ratcheting,
    "status is a subresource where it is declared so" => status,
    "several versions are served" => versions,
    "columns are those of the definition" => columns,
    "fields can be selected by where the definition says so" => selectable,
    "a scale is where the definition says" => scale,
    "a broken schema is refused" => broken_schema,
    "a rule that can never be evaluated is refused" => broken_rule,
    "functions of texts take no numbers" => functions_of_texts,
    "deleting a definition deletes its objects" => deleted,
    "objects are applied by their schema" => applied,
    "a definition shows in discovery and OpenAPI" => discoverable,
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A kind that belongs to one case.
struct Kind<'a> {
    world: &'a World,
    group: String,
}

fn spec_schema() -> Value {
    json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 10 },
            "colour": { "type": "string", "default": "red", "enum": ["red", "green"] },
            "fixed": { "type": "string", "x-kubernetes-validations": [
                { "rule": "self == oldSelf", "message": "fixed is immutable" },
            ] },
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "count": { "type": "integer", "default": 1 },
                } },
            },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "either": { "x-kubernetes-int-or-string": true },
        },
        "x-kubernetes-validations": [
            { "rule": "self.size < 9 || self.colour == 'green'", "message": "large ones are green" },
        ],
    })
}

impl<'a> Kind<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, group: format!("{}.example.com", world.unique) }
    }

    fn definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("widgets.{}", self.group) },
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["gadgets"] },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": spec_schema(),
                        "status": { "type": "object", "properties": { "size": { "type": "integer" } } },
                    } } },
                    "subresources": {
                        "status": {}, "scale": { "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size" },
                    },
                    "selectableFields": [{ "jsonPath": ".spec.colour" }],
                    "additionalPrinterColumns": [
                        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                        { "name": "First", "type": "string", "jsonPath": ".spec.parts[?(@.name=='a')].count", "priority": 1 },
                    ],
                }],
            },
        })
    }

    async fn define(&self, definition: &Value) -> anyhow::Result<()> {
        self.world.post(CRDS, definition).await?.expect(201)?;
        self.served("v1").await
    }

    /// Waits until objects can be made.
    async fn served(&self, version: &str) -> anyhow::Result<()> {
        let is_established = |answer: &Answer| {
            let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        };
        self.world.eventually(&self.definition_path(), "an established definition", is_established).await?;
        let path = format!("/apis/{}/{version}/namespaces/{}/widgets", self.group, self.world.namespace);
        self.world.eventually(&path, "a served kind", |answer| answer.code == 200).await.map(drop)
    }

    fn definition_path(&self) -> String {
        format!("{CRDS}/widgets.{}", self.group)
    }

    fn path(&self, rest: &str) -> String {
        self.world.path(&format!("{}/v1", self.group), &format!("widgets{rest}"))
    }

    fn widget(&self, name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": { "name": name }, "spec": spec })
    }

    async fn make(&self, name: &str, spec: &Value) -> anyhow::Result<Answer> {
        self.world.post(&self.path(""), &self.widget(name, spec)).await
    }

    /// Runs a check against the kind, and removes the kind whatever comes of it.
    async fn during<F: Future<Output = anyhow::Result<()>>>(
        &self,
        check: impl FnOnce() -> F,
    ) -> anyhow::Result<()> {
        let outcome = match self.define(&self.definition()).await {
            Ok(()) => check().await,
            Err(error) => Err(error),
        };
        self.world.delete(&self.definition_path(), None).await?;
        outcome
    }
}

async fn established(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let definition = world.get(&kind.definition_path()).await?.expect(200)?;
        let (spec, status) = (&definition["spec"], &definition["status"]);
        ensure!(spec["names"]["singular"] == "widget" && spec["names"]["listKind"] == "WidgetList", "{spec}");
        ensure!(spec["conversion"]["strategy"] == "None", "{spec}");
        ensure!(
            status["storedVersions"] == json!(["v1"]) && status["acceptedNames"]["kind"] == "Widget",
            "{status}"
        );
        let made = kind.make("w", &json!({ "size": 1 })).await?.expect(201)?;
        ensure!(made["metadata"]["generation"] == 1, "{made}");
        let list = world.get(&kind.path("")).await?.expect(200)?;
        ensure!(list["kind"] == "WidgetList" && list["items"][0]["kind"] == "Widget", "{list}");
        Ok(())
    })
    .await
}

async fn pruned_and_defaulted(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let spec = json!({ "size": 1, "bogus": true, "free": { "any": [1] }, "parts": [{ "name": "a" }], "either": "5%" });
        let answer = kind.make("w", &spec).await?;
        ensure!(answer.headers.get("warning").is_some_and(|text| text.as_bytes().ends_with(b"\\\"spec.bogus\\\"\"")), "no warning");
        let made = answer.expect(201)?;
        let expected = json!({
            "size": 1, "colour": "red", "free": { "any": [1] }, "parts": [{ "name": "a", "count": 1 }], "either": "5%",
        });
        ensure!(made["spec"] == expected, "{made}");
        let path = format!("{}?fieldValidation=Strict", kind.path(""));
        let answer = world.post(&path, &kind.widget("x", &spec)).await?;
        answer.expect_status(400, "BadRequest", "strict decoding error: unknown field \"spec.bogus\"")?;
        Ok(())
    })
    .await
}

async fn validated(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        for (spec, message) in [
            (json!({}), "spec.size: Required value"),
            (
                json!({ "size": "big" }),
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            ),
            (
                json!({ "size": 0 }),
                "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
            ),
            (
                json!({ "size": 1, "colour": "blue" }),
                "spec.colour: Unsupported value: \"blue\": supported values: \"red\", \"green\"",
            ),
            (
                json!({ "size": 1, "parts": [{ "name": "a" }, { "name": "a" }] }),
                "spec.parts[1]: Duplicate value: {\"name\":\"a\"}",
            ),
        ] {
            let status = kind.make("w", &spec).await?.expect_status(422, "Invalid", message)?;
            let start = format!("Widget.{} \"w\" is invalid: ", kind.group);
            ensure!(status["message"].as_str().is_some_and(|text| text.starts_with(&start)), "{status}");
        }
        let mut untyped = kind.widget("w", &json!({ "size": 1 }));
        untyped.as_object_mut().map(|object| object.remove("kind"));
        world.post(&kind.path(""), &untyped).await?.expect_status(
            400,
            "BadRequest",
            "Object 'Kind' is missing in",
        )?;
        Ok(())
    })
    .await
}

async fn rules(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let answer = kind.make("w", &json!({ "size": 9 })).await?;
        answer.expect_status(422, "Invalid", "spec: Invalid value: large ones are green")?;
        kind.make("w", &json!({ "size": 9, "colour": "green", "fixed": "a" })).await?.expect(201)?;
        let patch = json!({ "spec": { "fixed": "b" } });
        let answer = world.patch(&kind.path("/w"), "merge-patch+json", &patch).await?;
        answer.expect_status(422, "Invalid", "spec.fixed: Invalid value: \"b\": fixed is immutable")?;
        Ok(())
    })
    .await
}

/// Runs a check against a kind whose schema is changed first.
async fn with_schema<F: Future<Output = anyhow::Result<()>>>(
    kind: &Kind<'_>,
    change: impl FnOnce(&mut Value),
    check: impl FnOnce() -> F,
) -> anyhow::Result<()> {
    let mut definition = kind.definition();
    change(&mut definition["spec"]["versions"][0]);
    let outcome = match kind.define(&definition).await {
        Ok(()) => check().await,
        Err(error) => Err(error),
    };
    kind.world.delete(&kind.definition_path(), None).await?;
    outcome
}

async fn root_rule(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let rule = |version: &mut Value| {
        version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
            json!([{ "rule": "self.metadata.name != 'bad'", "message": "bad name" }]);
    };
    with_schema(&kind, rule, || async {
        let answer = kind.make("bad", &json!({ "size": 1 })).await?;
        let status = answer.expect_status(422, "Invalid", "is invalid: <nil>: Invalid value: bad name")?;
        ensure!(status["details"]["causes"][0]["field"] == "<nil>", "{status}");
        Ok(())
    })
    .await
}

async fn missing_key(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let rule = |version: &mut Value| {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["labels"] = json!({
            "type": "object", "additionalProperties": { "type": "string" },
            "x-kubernetes-validations": [{ "rule": "self['a'] == 'b'" }],
        });
    };
    with_schema(&kind, rule, || async {
        let answer = kind.make("w", &json!({ "size": 1, "labels": { "x": "y" } })).await?;
        let message =
            "spec.labels: Invalid value: \"object\": no such key: a evaluating rule: self['a'] == 'b'";
        answer.expect_status(422, "Invalid", message).map(drop)
    })
    .await
}

async fn neither_number_nor_text(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let change = |version: &mut Value| {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["either"] = json!({
            "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }],
        });
    };
    with_schema(&kind, change, || async {
        for (value, found, more) in [
            (json!(true), "boolean", ""),
            (json!(1.5), "number", ", <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.either"),
        ] {
            let answer = kind.make("w", &json!({ "size": 1, "either": value })).await?;
            let message = format!(
                "[spec.either: Invalid value: \"{found}\": spec.either in body must be of type integer,string: \"{found}\", \
                 <nil>: Invalid value: \"\": \"spec.either\" must validate at least one schema (anyOf), \
                 spec.either: Invalid value: \"{found}\": spec.either in body must be of type integer: \"{found}\"{more}, "
            );
            answer.expect_status(422, "Invalid", &message)?;
        }
        Ok(())
    })
    .await
}

async fn embedded_type(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let change = |version: &mut Value| {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["inner"] = json!({
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        });
    };
    with_schema(&kind, change, || async {
        for (inner, message) in [
            (json!({}), "[spec.inner.apiVersion: Required value, spec.inner.kind: Required value, "),
            (json!({ "apiVersion": "v1", "kind": "" }), "is invalid: spec.inner.kind: Invalid value: \"\": must not be empty"),
            (
                json!({ "apiVersion": "a/b/c", "kind": "X" }),
                "is invalid: spec.inner.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
        ] {
            let answer = kind.make("w", &json!({ "size": 1, "inner": inner })).await?;
            answer.expect_status(422, "Invalid", message)?;
        }
        Ok(())
    })
    .await
}

async fn deprecated(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    with_schema(
        &kind,
        |version| version["deprecated"] = json!(true),
        || async {
            let warning = format!("299 - \"{}/v1 Widget is deprecated\"", kind.group);
            let refused = kind.make("w", &json!({ "size": 0 })).await?;
            let read = world.get(&kind.path("")).await?;
            for (answer, code) in [(refused, 422), (read, 200)] {
                let found =
                    answer.headers.get("warning").and_then(|text| text.to_str().ok()).unwrap_or_default();
                ensure!(answer.code == code && found == warning, "{code} with warning {found}");
            }
            Ok(())
        },
    )
    .await
}

async fn functions_of_texts(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    for function in ["quantity", "url", "ip"] {
        let mut definition = kind.definition();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{ "rule": format!("{function}(self.size) == {function}('1')") }]);
        let answer = world.post(&format!("{CRDS}?dryRun=All"), &definition).await?;
        let message = format!("found no matching overload for '{function}' applied to '(int)'");
        answer.expect_status(422, "Invalid", &message)?;
    }
    Ok(())
}

async fn ratcheting(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        kind.make("w", &json!({ "size": 5, "free": { "a": 1 } })).await?.expect(201)?;
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";
        let patch = json!([{ "op": "replace", "path": path, "value": 3 }]);
        world.patch(&kind.definition_path(), "json-patch+json", &patch).await?.expect(200)?;
        // The new schema takes a moment to be used.
        let probe = format!("{}?dryRun=All", kind.path(""));
        let small = kind.widget("x", &json!({ "size": 5 }));
        repeat("a new schema", || world.post(&probe, &small), |answer| answer.code == 422).await?;
        let patch = json!({ "spec": { "free": { "a": 2 } } });
        world.patch(&kind.path("/w"), "merge-patch+json", &patch).await?.expect(200)?;
        let patch = json!({ "spec": { "size": 6 } });
        world.patch(&kind.path("/w"), "merge-patch+json", &patch).await?.expect(422)?;
        Ok(())
    })
    .await
}

async fn status(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let mut body = kind.widget("w", &json!({ "size": 1 }));
        body["status"] = json!({ "size": 1 });
        let made = world.post(&kind.path(""), &body).await?.expect(201)?;
        ensure!(made.get("status").is_none(), "{made}");
        let patch = json!({ "status": { "size": 2 }, "spec": { "size": 2 } });
        let patched = world.patch(&kind.path("/w/status"), "merge-patch+json", &patch).await?.expect(200)?;
        ensure!(patched["status"]["size"] == 2 && patched["spec"]["size"] == 1, "{patched}");
        ensure!(patched["metadata"]["generation"] == 1, "status does not count: {patched}");
        let patched = world
            .patch(&kind.path("/w"), "merge-patch+json", &json!({ "status": { "size": 3 } }))
            .await?
            .expect(200)?;
        ensure!(patched["status"]["size"] == 2, "{patched}");
        Ok(())
    })
    .await
}

async fn versions(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let mut definition = kind.definition();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    let check = async {
        kind.define(&definition).await?;
        kind.served("v2").await?;
        kind.make("w", &json!({ "size": 1 })).await?.expect(201)?;
        let path = world.path(&format!("{}/v2", kind.group), "widgets/w");
        let other = world.get(&path).await?.expect(200)?;
        ensure!(other["apiVersion"] == format!("{}/v2", kind.group), "{other}");
        anyhow::Ok(())
    };
    let outcome = check.await;
    world.delete(&kind.definition_path(), None).await?;
    outcome
}

async fn columns(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        kind.make("w", &json!({ "size": 3, "parts": [{ "name": "a", "count": 7 }] })).await?.expect(201)?;
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let table = world.send("GET", &kind.path(""), &[("accept", accept)], "").await?.expect(200)?;
        let names: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|column| column["name"].as_str())
            .collect();
        ensure!(names == ["Name", "Size", "First"], "{names:?}");
        ensure!(table["rows"][0]["cells"] == json!(["w", 3, "7"]), "{table}");
        Ok(())
    })
    .await
}

async fn selectable(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        kind.make("r", &json!({ "size": 1 })).await?.expect(201)?;
        kind.make("g", &json!({ "size": 1, "colour": "green" })).await?.expect(201)?;
        let list =
            world.get(&format!("{}?fieldSelector=spec.colour%3Dgreen", kind.path(""))).await?.expect(200)?;
        ensure!(list["items"].as_array().is_some_and(|items| items.len() == 1), "{list}");
        ensure!(list["items"][0]["metadata"]["name"] == "g", "{list}");
        world.get(&format!("{}?fieldSelector=spec.size%3D1", kind.path(""))).await?.expect(400)?;
        Ok(())
    })
    .await
}

async fn scale(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        kind.make("w", &json!({ "size": 3 })).await?.expect(201)?;
        let scale = world.get(&kind.path("/w/scale")).await?.expect(200)?;
        ensure!(scale["kind"] == "Scale" && scale["spec"]["replicas"] == 3, "{scale}");
        let patch = json!({ "spec": { "replicas": 4 } });
        world.patch(&kind.path("/w/scale"), "merge-patch+json", &patch).await?.expect(200)?;
        let widget = world.get(&kind.path("/w")).await?.expect(200)?;
        ensure!(widget["spec"]["size"] == 4, "{widget}");
        Ok(())
    })
    .await
}

async fn broken_schema(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    let mut definition = kind.definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({ "type": "object", "properties": { "a": {} } });
    let answer = world.post(CRDS, &definition).await?;
    answer.expect_status(422, "Invalid", "Required value: must not be empty for specified object fields")?;
    for metadata in [
        json!({ "type": "object", "description": "told" }),
        json!({ "type": "object", "properties": { "labels": { "type": "object" } } }),
    ] {
        let mut definition = kind.definition();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = metadata;
        let answer = world.post(CRDS, &definition).await?;
        let message =
            "openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name";
        answer.expect_status(422, "Invalid", message)?;
    }
    let mut definition = kind.definition();
    definition["metadata"]["name"] = json!(format!("gadgets.{}", kind.group));
    let answer = world.post(CRDS, &definition).await?;
    answer.expect_status(422, "Invalid", "must be spec.names.plural+\".\"+spec.group")?;
    Ok(())
}

async fn broken_rule(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    for (rule, message) in [
        ("self.nope > 1", "undefined field 'nope'"),
        ("self.parts.all(part, part.nope == 1)", "undefined field 'nope'"),
        ("self.size > 'a'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.size + self.colour == 1", "found no matching overload for '_+_' applied to '(int, string)'"),
        (
            "self.size.startsWith('a')",
            "found no matching overload for 'startsWith' applied to 'int.(string)'",
        ),
        ("self.size", "must evaluate to a bool"),
        ("self.size.big", "type 'int' does not support field selection"),
        ("self.nope", "undefined field 'nope'"),
    ] {
        let mut definition = kind.definition();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{ "rule": rule }]);
        world.post(CRDS, &definition).await?.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}

async fn deleted(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.define(&kind.definition()).await?;
    kind.make("w", &json!({ "size": 1 })).await?.expect(201)?;
    world.delete(&kind.definition_path(), None).await?.expect(200)?;
    world.gone(&kind.definition_path()).await?;
    world.eventually(&kind.path("/w"), "an unserved kind", |answer| answer.code == 404).await?;
    Ok(())
}

async fn applied(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let path = kind.path("/w");
        let one = kind.widget("w", &json!({ "size": 1, "parts": [{ "name": "a", "count": 2 }] }));
        world.apply(&path, "one", false, &one).await?.expect(201)?;
        let two = kind.widget("w", &json!({ "parts": [{ "name": "b", "count": 3 }] }));
        let both = world.apply(&path, "two", false, &two).await?.expect(200)?;
        ensure!(both["spec"]["parts"].as_array().is_some_and(|parts| parts.len() == 2), "{both}");
        let wrong = kind.widget("w", &json!({ "bogus": 1 }));
        let answer = world.apply(&path, "two", false, &wrong).await?;
        ensure!(
            answer.code == 500 && answer.text.contains(".spec.bogus: field not declared in schema"),
            "{}",
            answer.text
        );
        Ok(())
    })
    .await
}

async fn discoverable(world: World) -> anyhow::Result<()> {
    let kind = Kind::new(&world);
    kind.during(|| async {
        let list = world.get(&format!("/apis/{}/v1", kind.group)).await?.expect(200)?;
        let resources = list["resources"].as_array().cloned().unwrap_or_default();
        let widgets =
            resources.iter().find(|resource| resource["name"] == "widgets").cloned().unwrap_or_default();
        ensure!(
            widgets["shortNames"] == json!(["wd"]) && widgets["categories"] == json!(["gadgets"]),
            "{list}"
        );
        ensure!(resources.iter().any(|resource| resource["name"] == "widgets/status"), "{list}");
        let path = format!("apis/{}/v1", kind.group);
        let is_published = |answer: &Answer| answer.body["paths"][&path].is_object();
        let index = world.eventually("/openapi/v3", "a published schema", is_published).await?.body;
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
        let document = world.get(&url).await?.expect(200)?.to_string();
        ensure!(document.contains("\"Widget\"") && document.contains("\"colour\""), "no schema of Widget");
        let old = world.get("/openapi/v2").await?.expect(200)?;
        let name = kind.group.split('.').rev().chain(["v1", "Widget"]).collect::<Vec<_>>().join(".");
        for field in ["apiVersion", "kind", "metadata"] {
            let description = &old["definitions"][&name]["properties"][field]["description"];
            ensure!(description.is_string(), "{field} is not described: {}", old["definitions"][&name]);
        }
        Ok(())
    })
    .await
}
