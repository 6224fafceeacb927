//! Keys of a data directory that are damaged or missing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::PathBuf};

use quintet_apiserver::{Cluster, Settings};

fn settings(data_dir: &std::path::Path) -> Settings {
    Settings { data_dir: Some(data_dir.to_owned()), ..Settings::default() }
}

/// A data directory that was started once.
async fn started(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("quintet-keys-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    Cluster::start(settings(&path)).await.unwrap().stop().await;
    path
}

#[tokio::test]
async fn a_damaged_or_missing_key_is_named_with_what_to_do() {
    let path = started("damaged").await;
    for (file, content, says) in [
        ("ca.key", Some("nonsense"), "ca.key is damaged"),
        ("ca.key", None, "ca.key is missing"),
        ("ca.crt", Some("nonsense"), "ca.crt is damaged"),
        ("ca.crt", None, "ca.crt is missing"),
        ("tokens.key", Some("nonsense"), "tokens.key is damaged"),
    ] {
        let file = path.join(file);
        let good = fs::read(&file).unwrap();
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let error = Cluster::start(settings(&path)).await.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("restore it from a backup"), "{error}");
        fs::write(&file, good).unwrap();
    }
    Cluster::start(settings(&path)).await.unwrap().stop().await;
    fs::remove_dir_all(&path).unwrap();
}

#[tokio::test]
async fn a_key_of_another_authority_is_refused() {
    let (path, other) = (started("one").await, started("other").await);
    fs::copy(other.join("ca.key"), path.join("ca.key")).unwrap();
    let error = Cluster::start(settings(&path)).await.unwrap_err().to_string();
    assert!(error.contains("ca.key is not the key of ca.crt"), "{error}");
    for path in [path, other] {
        fs::remove_dir_all(path).unwrap();
    }
}
