//! `quintet up` as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running `quintet up`; killed if the test fails.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command.args(["up", "--no-operator", "--no-node", "--port", "0", "--data-dir"]).arg(data_dir);
    command
}

/// Starts it and waits until it says that it is up.
fn start(data_dir: &Path) -> Up {
    let mut up = Up(command(data_dir).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(up.0.stdout.take().unwrap()).lines();
    let first = lines.next().expect("it says that it is up").unwrap();
    assert!(first.starts_with("Quintet is up at https://127.0.0.1:"), "{first}");
    // Whoever prints into a closed pipe dies; this one is read to its end.
    std::thread::spawn(move || lines.for_each(drop));
    up
}

fn stop(mut up: Up) {
    let pid = up.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(up.0.wait().unwrap().success(), "ctrl-c is a clean end");
}

#[test]
fn it_serves_once_per_data_directory() {
    let data_dir = std::env::temp_dir().join(format!("quintet-up-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data_dir);
    let up = start(&data_dir);
    let kubeconfig = data_dir.join("kubeconfig");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&kubeconfig).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else reads the credentials");
    }
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    assert!(text.contains("client-key-data: LS0tLS1"), "{text}");
    let is_key_and_value = |line: &str| {
        let words: Vec<_> = line.trim_start_matches("- ").split_whitespace().collect();
        matches!(words[..], [key] | [key, _] if key.ends_with(':'))
    };
    assert!(text.lines().all(|line| is_key_and_value(line.trim())), "a value per line: {text}");

    let second = command(&data_dir).output().unwrap();
    assert!(!second.status.success());
    let complaint = String::from_utf8(second.stderr).unwrap();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("is in use by another quintet"), "{complaint}");
    stop(up);
    // What is stopped can be started again, on the same data.
    stop(start(&data_dir));
    std::fs::remove_dir_all(data_dir).unwrap();
}

#[test]
fn it_takes_nobodys_credentials_away() {
    let data_dir = std::env::temp_dir().join(format!("quintet-kubeconfig-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data_dir);
    let up = start(&data_dir);
    let kubeconfig = data_dir.join("kubeconfig");
    let before = std::fs::read_to_string(&kubeconfig).unwrap();
    let mut beside = command(&data_dir).arg("--in-memory").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(beside.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    stop(Up(beside));
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), before);
    assert!(data_dir.join("kubeconfig-in-memory").exists());
    stop(up);

    let foreign = data_dir.join("foreign");
    let theirs =
        "apiVersion: v1\nkind: Config\nclusters:\n- name: work\n  cluster: {server: https://example.com}\n";
    std::fs::write(&foreign, theirs).unwrap();
    let refused = command(&data_dir).arg("--in-memory").arg("--kubeconfig").arg(&foreign).output().unwrap();
    let complaint = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && complaint.contains("choose another file with --kubeconfig"),
        "{complaint}"
    );
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), theirs);
    std::fs::remove_dir_all(data_dir).unwrap();
}

#[test]
fn status_looks_where_it_is_told_to() {
    let data_dir = std::env::temp_dir().join(format!("quintet-status-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data_dir);
    let up = start(&data_dir);
    let status = |data_dir: &Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
        // A kubeconfig of the environment does not stand in for a data directory that is named.
        command
            .arg("status")
            .arg("--data-dir")
            .arg(data_dir)
            .args(arguments)
            .env("KUBECONFIG", "/nonexistent");
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (is_well, text) = status(&data_dir, &[]);
    assert!(is_well && text.starts_with("Quintet is up at https://127.0.0.1:"), "{text}");
    let (is_well, text) = status(&data_dir, &["-n", "nowhere"]);
    assert!(!is_well && text.contains("namespace \"nowhere\" does not exist"), "{text}");
    let (is_well, text) = status(&data_dir.join("other"), &[]);
    assert!(!is_well && text.contains("no quintet up runs on"), "{text}");
    stop(up);
    std::fs::remove_dir_all(data_dir).unwrap();
}
