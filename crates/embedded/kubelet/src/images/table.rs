//! The table of images.

use super::files::POSTGRESQL;
use super::{Addition, Mapping, Reference, Runtime};

/// An image that nothing is mapped to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no local runtime for image {0:?}: pods run as processes here, without a registry. Map the image to a runtime of this \
     machine in the configuration: node.images: [{{image: {1:?}, runtime: {{host: {{}}}}}}]"
)]
pub struct UnmappedImage(pub String, String);

/// Where this program is in images of the model registry.
const MODEL_REGISTRY: &str = "/model-registry";

/// A mapping, and what is added to its runtime.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) mapping: Mapping,
    pub(super) addition: Option<Addition>,
}

/// All mappings. Those of the user come first.
#[derive(Clone, Debug)]
pub struct Table(Vec<Entry>);

impl Table {
    /// The table with mappings of the user before its own.
    pub fn new(own: Vec<Mapping>) -> Self {
        Self(own.into_iter().chain(defaults()).map(Entry::plain).chain(additions()).collect())
    }

    /// What runs in place of an image: the mapping with the longest pattern that matches, the first of equals.
    pub(super) fn find(&self, image: &Reference) -> Result<&Entry, UnmappedImage> {
        let matching = self.0.iter().filter(|entry| matches(&entry.mapping.image, image));
        // `max_by_key` returns the last of equals.
        let found = matching.rev().max_by_key(|entry| entry.mapping.image.len());
        found.ok_or_else(|| UnmappedImage(image.to_string(), image.repository.clone()))
    }
}

impl Entry {
    fn plain(mapping: Mapping) -> Self {
        Self { mapping, addition: None }
    }
}

fn matches(pattern: &str, image: &Reference) -> bool {
    let (repository, tag) = match pattern.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (pattern, None),
    };
    let suffixes = image.repository.match_indices('/').map(|(at, _)| &image.repository[at + 1..]);
    let mut names = std::iter::once(image.repository.as_str()).chain(suffixes);
    names.any(|name| glob(repository, name)) && tag.is_none_or(|tag| glob(tag, &image.tag))
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    let mut rest = rest;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

/// Ray's dashboard gives up for good when its parts take longer than half a minute to start, as on a busy machine.
const PATIENT: [(&str, &str); 2] = [
    ("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "300"),
    ("RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT", "300"),
];

fn mapping(image: &str, runtime: Runtime, arguments: &[&str]) -> Mapping {
    Mapping {
        image: image.to_owned(),
        runtime,
        entrypoint: Vec::new(),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        environment: std::collections::BTreeMap::new(),
        user: None,
        home: None,
    }
}

/// Images of the Model Registry operator.
fn additions() -> impl Iterator<Item = Entry> {
    // Its user is that of sclorg's images, and the same in all pods: the next one reads the files of the last one.
    let postgresql =
        Mapping { user: Some(26), ..mapping("sclorg/postgresql-*", Runtime::Host {}, &["run-postgresql"]) };
    let entry = |mapping, addition| Entry { mapping, addition: Some(addition) };
    let servers = ["opendatahub/model-registry", "kubeflow/model-registry/server"]
        .map(|image| entry(mapping(image, Runtime::Host {}, &[]), Addition::Program(MODEL_REGISTRY)));
    servers.into_iter().chain([entry(postgresql, Addition::Files(&POSTGRESQL))])
}

/// What is mapped without being asked for. Like the images they stand for, all but ours run any command that is given to
/// them, and a shell or interpreter if there is none.
fn defaults() -> Vec<Mapping> {
    let host = |image: &str, program: &str| mapping(image, Runtime::Host {}, &[program]);
    let python = |image: &str, packages: &[&str], program: &str| {
        let packages = packages.iter().map(|package| (*package).to_owned()).collect();
        mapping(image, Runtime::Python { packages }, &[program])
    };
    // Ray does not bound protobuf, and its Serve fails with newer ones than its images have.
    let ray = Mapping {
        environment: PATIENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        user: Some(1000),
        home: Some("/home/ray".into()),
        ..python("rayproject/ray", &["ray[default,serve]=={version}", "protobuf<6"], "/bin/bash")
    };
    // With the drivers of its databases and artifact stores, and what its client needs for service accounts. SQLAlchemy 2.1
    // reads `postgresql://` as psycopg 3, with which MLflow compares integers to text, and fails. Its user is the same in
    // all pods: they share a volume.
    let mlflow = Mapping {
        user: Some(1001),
        ..python(
            "mlflow/mlflow",
            &[
                "mlflow=={version}",
                "sqlalchemy<2.1",
                "psycopg[binary]",
                "psycopg2-binary",
                "pymysql",
                "boto3",
                "kubernetes",
                "prometheus-flask-exporter",
            ],
            "/bin/bash",
        )
    };
    let mut table = vec![
        Mapping { image: "rayproject/ray-ml".into(), ..ray.clone() },
        // The images of Open Data Hub, which CodeFlare's client uses.
        Mapping { image: "modh/ray".into(), ..ray.clone() },
        ray,
        python("python", &[], "python3"),
        mlflow,
        Mapping { entrypoint: vec!["quintet".into()], ..mapping("quintet", Runtime::Quintet {}, &[]) },
        // The user of Ray's images, whose files the collector reads and moves.
        Mapping {
            entrypoint: vec!["quintet".into(), "collector".into()],
            user: Some(1000),
            ..mapping("quintet-collector", Runtime::Quintet {}, &[])
        },
        host("redis", "redis-server"),
    ];
    table.extend(["busybox", "alpine"].map(|image| host(image, "/bin/sh")));
    table.extend(["bash", "debian", "ubuntu"].map(|image| host(image, "/bin/bash")));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(table: &Table, image: &str) -> Result<String, UnmappedImage> {
        table.find(&Reference::parse(image).unwrap()).map(|entry| entry.mapping.image.clone())
    }

    fn own(image: &str) -> Mapping {
        Mapping { image: image.into(), ..defaults().remove(0) }
    }

    #[test]
    fn images_are_found_by_repository_also_in_mirrors() {
        let table = Table::new(Vec::new());
        for (image, expected) in [
            ("rayproject/ray:2.52.0", "rayproject/ray"),
            ("registry.example.com/mirror/rayproject/ray:2.9.0-gpu", "rayproject/ray"),
            ("rayproject/ray-ml:2.9.0", "rayproject/ray-ml"),
            ("quay.io/modh/ray:2.52.1-py311-cu121", "modh/ray"),
            ("quay.io/sclorg/postgresql-16-c10s:latest", "sclorg/postgresql-*"),
            ("quay.io/opendatahub/model-registry:latest", "opendatahub/model-registry"),
            ("python:3.11-slim", "python"),
            ("docker.io/library/busybox", "busybox"),
        ] {
            assert_eq!(find(&table, image).as_deref(), Ok(expected), "{image}");
        }
    }

    #[test]
    fn ray_has_time_to_start() {
        let table = Table::new(Vec::new());
        for image in ["rayproject/ray:2.53.0", "rayproject/ray-ml:2.9.0", "quay.io/modh/ray:2.52.1"] {
            let found = table.find(&Reference::parse(image).unwrap()).unwrap();
            let patience =
                found.mapping.environment.get("RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT");
            assert_eq!(patience.map(String::as_str), Some("300"), "{image}");
        }
    }

    #[test]
    fn an_image_that_nobody_mapped_says_how_to_map_it() {
        let error = find(&Table::new(Vec::new()), "nginx:1.27").unwrap_err().to_string();
        assert!(error.starts_with("no local runtime for image \"nginx:1.27\""), "{error}");
        assert!(error.contains("node.images: [{image: \"nginx\", runtime: {host: {}}}]"), "{error}");
        assert!(find(&Table::new(Vec::new()), "example.com/notpython:1").is_err());
    }

    #[test]
    fn the_longest_pattern_wins_and_the_user_before_us() {
        let table = Table::new(vec![own("team/*"), own("team/app:1.*"), own("busybox")]);
        assert_eq!(find(&table, "team/app:2").as_deref(), Ok("team/*"));
        assert_eq!(find(&table, "team/app:1.4").as_deref(), Ok("team/app:1.*"));
        let found = table.find(&Reference::parse("busybox").unwrap()).unwrap();
        assert_eq!(found.mapping.arguments, own("busybox").arguments);
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b", "abc", false),
            ("abc", "abcd", false),
            ("a*bc*c", "abc", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
