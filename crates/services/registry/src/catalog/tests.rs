//! Catalogs made of files in a temporary directory.

use std::path::Path;

use http::{HeaderMap, Method};
use serde_json::Value;

use super::CatalogServer;
use crate::api::Request;
use crate::api::query::Query;

const SOURCES: &str = "
model_catalogs:
  - {id: a, name: A, type: yaml, labels: [Red], properties: {yamlCatalogPath: a.yaml}}
  - {id: far, name: Far, type: hf}
mcp_catalogs:
  - {id: t, name: T, type: yaml, properties: {yamlCatalogPath: t.yaml}}
namedQueries:
  local: {assetType: mcp_servers, filters: {deploymentMode: {operator: IN, value: [local]}}}
";
const MODELS: &str = "
models:
  - {name: org/one, tasks: [x, y], artifacts: [{uri: 'oci://r/one'}]}
  - {name: org/two, tasks: [y], provider: P}
";
const SERVERS: &str = "
mcp_servers:
  - {name: files, version: '1', deploymentMode: local, tools: [{name: read}, {name: write, accessType: read_write}]}
  - {name: far, deploymentMode: remote, endpoints: {http: 'https://far.example/mcp'}}
  - {name: broken, deploymentMode: remote}
";

struct Files {
    directory: tempfile::TempDir,
    server: CatalogServer,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let server = CatalogServer::new(vec![directory.path().join("sources.yaml")], Vec::new());
        let files = Self { directory, server };
        files.write("sources.yaml", SOURCES);
        files.write("a.yaml", MODELS);
        files.write("t.yaml", SERVERS);
        files
    }

    fn loaded() -> Self {
        let files = Self::new();
        files.server.load().expect("it loads");
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("a file");
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn send(&self, method: Method, target: &str, headers: HeaderMap, body: &str) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method,
            path: path.to_owned(),
            query: Query::parse(query),
            headers,
            body: body.to_owned().into(),
        };
        let response = self.server.answer(&request);
        (response.status.as_u16(), serde_json::from_str(&response.body).unwrap_or(Value::Null))
    }

    fn get(&self, target: &str) -> (u16, Value) {
        self.send(Method::GET, &format!("/api/{target}"), HeaderMap::new(), "")
    }

    fn names(&self, target: &str) -> Vec<String> {
        let (status, body) = self.get(target);
        assert_eq!(status, 200, "{target}: {body}");
        let items = body["items"].as_array().expect("items");
        items.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn preview(&self, config: &str, data: Option<&str>) -> (u16, Value) {
        let part = |name: &str, text: &str| {
            format!(
                "--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n{text}\r\n"
            )
        };
        let data = data.map(|data| part("catalogData", data)).unwrap_or_default();
        let body = format!("{}{data}--b--\r\n", part("config", config));
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "multipart/form-data; boundary=b".parse().expect("a header"));
        self.send(Method::POST, "/api/model_catalog/v1alpha1/sources/preview", headers, &body)
    }
}

const MODELS_PATH: &str = "model_catalog/v1alpha1/models";
const SERVERS_PATH: &str = "mcp_catalog/v1alpha1/mcp_servers";

#[test]
fn lists_contain_a_value_or_not() {
    let files = Files::loaded();
    let filtered = |query: &str| files.names(&format!("{MODELS_PATH}?filterQuery={query}"));
    assert_eq!(filtered("tasks%20%3D%20%22x%22"), ["org/one"]);
    assert_eq!(filtered("tasks%20!%3D%20%22x%22"), ["org/two"]);
    assert_eq!(filtered("tasks%20IN%20(%22x%22%2C%22y%22)"), ["org/one", "org/two"]);
    assert_eq!(filtered("name%20%3D%20%22org/two%22"), ["org/two"]);
    assert_eq!(files.names(&format!("{MODELS_PATH}?q=ORG/T")), ["org/two"]);
}

#[test]
fn refusals_are_told_in_the_words_of_upstream() {
    let files = Files::loaded();
    let artifacts = "model_catalog/v1alpha1/sources/a/models/org/one/artifacts";
    let mismatch = "invalid filter query, type mismatch or invalid value in comparison: bad request";
    let of_performance = "failed to get performance artifacts: failed to list artifacts";
    let value_type = "invalid custom property value type 'x': must be one of 'int_value', 'double_value', or 'string_value': bad request";
    let of_recommendation = "failed to find models with recommended latency: failed to fetch models";
    let cases = [
        (format!("{artifacts}?filterQuery=id%20%3D%20%22x%22"), 400, format!("error listing catalog artifacts: {mismatch}")),
        (format!("{artifacts}?orderBy=p.x"), 400, value_type.to_owned()),
        (format!("{artifacts}?orderBy=.int_value"), 400, "invalid custom property name '': bad request".to_owned()),
        (format!("{artifacts}/performance?orderBy=p.x"), 400, format!("{of_performance}: {value_type}")),
        (
            format!("{artifacts}/performance?filterQuery=id%20%3D%20%22x%22"),
            400,
            format!("{of_performance}: error listing catalog artifacts: {mismatch}"),
        ),
        (format!("{MODELS_PATH}?filterQuery=tasks%20ILIKE%20%22x%22"), 400, format!("error listing catalog models: {mismatch}")),
        (format!("{MODELS_PATH}?filterQuery=tasks%20%3D%20(%22x%22%2C%22y%22)"), 400, format!("error listing catalog models: {mismatch}")),
        (format!("{SERVERS_PATH}?filterQuery=artifacts%20%3D%205"), 400, format!("error listing MCP servers: {mismatch}")),
        (
            format!("{MODELS_PATH}?recommendations=x&targetRPS=y"),
            400,
            "recommendations: strconv.ParseBool: parsing \"x\": invalid syntax".to_owned(),
        ),
        (
            format!("{MODELS_PATH}?recommendations=true&filterQuery=id%20%3D%20%22x%22"),
            400,
            format!("{of_recommendation}: error listing catalog models: {mismatch}"),
        ),
        (
            format!("{MODELS_PATH}?orderBy=RECOMMENDED&nextPageToken=-1"),
            400,
            "invalid nextPageToken: must be a non-negative integer (0..2147483647), got \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax".to_owned(),
        ),
        (
            "model_catalog/v1alpha1/sources?orderBy=ACCURACY".to_owned(),
            400,
            "unsupported order by field: ACCURACY".to_owned(),
        ),
        (
            "model_catalog/v1alpha1/sources//models/org/one".to_owned(),
            422,
            "required field 'source_id' is zero value.".to_owned(),
        ),
        ("model_catalog/v1alpha1/sources/a/models/".to_owned(), 422, "required field '*' is zero value.".to_owned()),
        (
            "model_catalog/v1alpha1/sources/a/models//artifacts".to_owned(),
            422,
            "required field 'model_name' is zero value.".to_owned(),
        ),
        (format!("{SERVERS_PATH}//tools"), 422, "required field 'server_id' is zero value.".to_owned()),
    ];
    for (path, status, message) in cases {
        let (actual, body) = files.get(&path);
        assert_eq!((actual, body["message"].as_str()), (status, Some(message.as_str())), "{path}");
    }
    let (_, body) = files.get(&format!("{artifacts}/performance?filterQuery=x%20%3D"));
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(&format!("{of_performance}: invalid filter query syntax")), "{message}");
    assert!(
        message.contains("1:5: unexpected token"),
        "positions count the parenthesis around the filter: {message}"
    );
}

#[test]
fn filters_that_upstream_takes_are_taken() {
    let files = Files::loaded();
    let artifacts = "model_catalog/v1alpha1/sources/a/models/org/one/artifacts";
    for state in ["1", "%22LIVE%22"] {
        assert_eq!(files.get(&format!("{artifacts}?filterQuery=state%20%3D%20{state}")).1["size"], 0);
    }
    assert_eq!(files.names(&format!("{MODELS_PATH}?source=,")), ["org/one", "org/two"]);
    assert_eq!(files.names(&format!("{MODELS_PATH}?source=,far")), [""; 0]);
}

#[test]
fn pages_of_every_order_hold_each_item_once() {
    let files = Files::loaded();
    let orders =
        ["NAME", "ID", "CREATE_TIME", "provider.string_value", "artifacts.uri.string_value", "nonsense"];
    for order in orders.iter().flat_map(|it| [format!("{it}&sortOrder=ASC"), format!("{it}&sortOrder=DESC")])
    {
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("{MODELS_PATH}?pageSize=1&orderBy={order}&nextPageToken={token}");
            let (_, page) = files.get(&path);
            seen.extend(page["items"].as_array().expect("items").iter().map(|it| it["name"].to_string()));
            token = page["nextPageToken"].as_str().expect("a token").replace('=', "%3D");
            if token.is_empty() {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, ["\"org/one\"", "\"org/two\""], "{order}");
    }
}

const MEASUREMENTS: &str = "
models:
  - name: org/one
    artifacts:
      - {artifactType: metrics-artifact, metricsType: performance-metrics, customProperties: {
          ttft_p90: {metadataType: MetadataDoubleValue, double_value: 10.0},
          requests_per_second: {metadataType: MetadataDoubleValue, double_value: 1.0},
          hardware_count: {metadataType: MetadataIntValue, int_value: '4'},
          hardware_type: {metadataType: MetadataStringValue, string_value: A}}}
      - {artifactType: metrics-artifact, metricsType: performance-metrics, customProperties: {
          ttft_p90: {metadataType: MetadataDoubleValue, double_value: 90.0},
          requests_per_second: {metadataType: MetadataDoubleValue, double_value: 1.0},
          hardware_count: {metadataType: MetadataIntValue, int_value: '1'},
          hardware_type: {metadataType: MetadataStringValue, string_value: A}}}
";

#[test]
fn tokens_of_measurements_have_a_value_unless_they_are_recommended() {
    let files = Files::new();
    files.write("a.yaml", MEASUREMENTS);
    files.server.load().expect("it loads");
    let list = "model_catalog/v1alpha1/sources/a/models/org/one/artifacts/performance?pageSize=1";
    let token = |query: &str| {
        let (status, page) = files.get(&format!("{list}{query}"));
        assert_eq!(status, 200, "{page}");
        let id = page["items"][0]["id"].as_str().expect("an id").to_owned();
        let token = page["nextPageToken"].as_str().expect("a token");
        let token = crate::text::base64_decode(token).expect("base64");
        (id, String::from_utf8(token).expect("text"))
    };
    let (id, token_of_all) = token("");
    assert_eq!(token_of_all, format!("{id}:{id}"));
    let (id, token_of_recommended) = token("&recommendations=true");
    assert_eq!(token_of_recommended, format!("{id}:"));
    // "10:" and "1:now"
    assert_eq!(files.get(&format!("{list}&nextPageToken=MTA6")).0, 400);
    assert_eq!(files.get(&format!("{list}&orderBy=ttft_p90.double_value&nextPageToken=MTpub3c%3D")).0, 400);
}

#[test]
fn agents_are_ordered_behind_their_source() {
    let files = Files::new();
    let agents = "agent_catalogs:
  - {id: z, type: yaml, properties: {yamlCatalogPath: z.yaml}}
  - {id: y, type: yaml, properties: {yamlCatalogPath: y.yaml}}
";
    files.write("sources.yaml", &format!("{SOURCES}{agents}"));
    files.write("y.yaml", "agents: [{name: writer}]");
    files.write("z.yaml", "agents: [{name: planner}]");
    files.server.load().expect("it loads");
    let path = "agent_catalog/v1alpha1/agents";
    assert_eq!(files.names(&format!("{path}?orderBy=NAME")), ["writer", "planner"]);
    let (_, page) = files.get(&format!("{path}?orderBy=NAME&pageSize=1"));
    let token = crate::text::base64_decode(page["nextPageToken"].as_str().expect("a token")).expect("base64");
    assert!(token.ends_with(b":y:writer"), "{token:?}");
    let (status, body) = files.get(&format!("{path}/x/artifacts?artifactType=bogus&pageSize=y"));
    let why = "artifactType: invalid value 'bogus' for AgentArtifactTypeQueryParam: valid values are [template-artifact]";
    assert_eq!((status, body["message"].as_str()), (400, Some(why)));
}

#[test]
fn servers_show_tools_and_are_found_by_named_queries() {
    let files = Files::loaded();
    assert_eq!(files.names(&format!("{SERVERS_PATH}?namedQuery=local")), ["files"]);
    assert_eq!(files.get(&format!("{SERVERS_PATH}?namedQuery=none")).0, 400);
    let (_, page) = files.get(&format!("{SERVERS_PATH}?includeTools=true&toolLimit=1&name=fil%25"));
    let server = &page["items"][0];
    assert_eq!((server["toolCount"].clone(), server["tools"].as_array().map(Vec::len)), (2.into(), Some(1)));
    let id = server["id"].as_str().expect("an id");
    let (_, tool) = files.get(&format!("{SERVERS_PATH}/{id}/tools/write"));
    assert_eq!(tool["accessType"], "read_write");
    assert_eq!(files.get(&format!("{SERVERS_PATH}/{id}/tools/none")).0, 404);
    assert_eq!(files.get(&format!("{SERVERS_PATH}/999")).0, 404);
    assert_eq!(files.get(&format!("{SERVERS_PATH}/x")).0, 400);
    assert_eq!(files.get(&format!("{SERVERS_PATH}?toolLimit=101")).0, 400);
}

#[test]
fn sources_say_what_is_wrong_with_them() {
    let files = Files::loaded();
    let (_, sources) = files.get("model_catalog/v1alpha1/sources");
    assert_eq!(sources["items"][1]["error"], "catalog type \"hf\" not registered");
    let (_, sources) = files.get("model_catalog/v1alpha1/sources?assetType=mcp_servers");
    assert_eq!(sources["items"][0]["status"], "partially-available");
}

#[test]
fn a_source_that_breaks_keeps_its_models_and_their_ids() {
    let files = Files::loaded();
    let before = files.get(MODELS_PATH);
    files.write("a.yaml", "models: [{nonsense: 1}]");
    assert!(files.server.is_changed());
    files.server.load().expect("it loads");
    assert_eq!(files.get(MODELS_PATH), before);
    assert_eq!(files.get("model_catalog/v1alpha1/sources").1["items"][0]["status"], "error");
    files.write("a.yaml", "models: [{name: new}, {name: org/two}]");
    files.server.load().expect("it loads");
    let (_, after) = files.get(&format!("{MODELS_PATH}?filterQuery=name%20%3D%20%22org/two%22"));
    assert_eq!(after["items"][0]["id"], before.1["items"][1]["id"]);
    files.write("sources.yaml", "model_catalogs: [");
    assert!(files.server.load().is_err());
    assert!(!files.server.is_changed(), "the broken file is not read again and again");
    assert_eq!(files.names(MODELS_PATH), ["new", "org/two"]);
}

#[test]
fn previews_do_not_read_other_files() {
    let files = Files::loaded();
    let config = "{type: yaml, excludedModels: ['*two']}";
    let (status, preview) = files.preview(config, Some(MODELS));
    assert_eq!((status, &preview["summary"]["includedModels"]), (200, &1.into()), "{preview}");
    let with_path =
        |path: &str| files.preview(&format!("{{type: yaml, properties: {{yamlCatalogPath: {path}}}}}"), None);
    assert_eq!(with_path("a.yaml").0, 200);
    for path in ["/etc/passwd", "../secret.yaml", "none.yaml"] {
        let (status, refused) = with_path(path);
        assert_eq!(status, 422, "{path}");
        let message = refused["message"].as_str().expect("a message");
        assert!(!message.contains(files.path().to_str().expect("a path")), "{message}");
    }
    let outside = tempfile::NamedTempFile::new().expect("a file");
    std::os::unix::fs::symlink(outside.path(), files.path().join("link.yaml")).expect("a link");
    assert_eq!(with_path("link.yaml").0, 422);
    assert_eq!(files.preview("{type: nonsense}", Some(MODELS)).0, 422);
    assert_eq!(files.preview("{}", None).0, 422);
    let unknown = |data: &str| files.preview("{type: yaml}", Some(data));
    for (data, field) in [(SERVERS, "mcp_servers"), ("models: [{name: a, bogus: 1}]", "bogus")] {
        let why = format!("error unmarshaling JSON: while decoding JSON: json: unknown field \"{field}\"");
        let expected = format!("failed to load models: failed to parse catalog file: {why}");
        let (status, refused) = unknown(data);
        assert_eq!((status, refused["message"].as_str()), (422, Some(expected.as_str())));
    }
    let (_, refused) = files.preview("{type: hf}", Some(MODELS));
    assert!(
        refused["message"].as_str().is_some_and(|it| it.contains("includedModels is required")),
        "{refused}"
    );
}

#[test]
fn it_is_ready_when_it_is_loaded() {
    let files = Files::new();
    let ready = |files: &Files| files.send(Method::GET, "/readyz", HeaderMap::new(), "").0;
    assert_eq!(ready(&files), 503);
    assert_eq!(files.get(MODELS_PATH).0, 503);
    files.server.load().expect("it loads");
    assert_eq!(ready(&files), 200);
    assert_eq!(files.send(Method::GET, "/healthz", HeaderMap::new(), "").0, 200);
}
