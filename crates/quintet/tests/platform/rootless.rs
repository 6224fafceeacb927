//! The platform of an ordinary user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::ray::{job, logs, pods, succeeds, sum};
use crate::support::{Platform, Program, become_user};

/// An ordinary user.
const USER: u32 = 1000;

pub(crate) async fn an_ordinary_user_runs_the_same_job(platform: &Platform) {
    if let Some(reason) = obstacle() {
        println!("skipped: {reason}");
        return;
    }
    let environment = platform.ray_environment();
    let Some(python) = readable_python(&environment) else {
        println!("skipped: ordinary users cannot use the Python that Ray is installed for");
        return;
    };
    // Beside the original, so that the files of its environment need not be copied.
    let directory = platform.directory().join("of-user");
    let program = Program { path: directory.join("quintet"), user: Some(USER) };
    let own = Platform::new(directory.clone(), program);
    fs::create_dir_all(directory.join("node/environments")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_quintet"), directory.join("quintet")).unwrap();
    share(&environment, &directory.join("node/environments"), &python);
    for path in [&directory, &directory.join("node")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let own = own.started().await;
    own.apply(&job("sum", &sum())).await;
    succeeds(&own, "sum").await;
    let submitter = pods(&own, "job-name=sum").await;
    logs(&own, &submitter[0], None, "the answer is 6").await;
    // With pods that run: their files are of users that only the namespaces of the platform have.
    let sleeper = json!({ "name": "main", "image": "busybox", "command": ["sleep", "1000"] });
    own.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "sleeper" }, "spec": { "containers": [sleeper] },
    }))
    .await;
    own.wait(("v1", "Pod", "sleeper"), "running", |pod| pod["status"]["phase"] == "Running").await;
    own.down();
}

/// Why an ordinary user cannot run pods here.
fn obstacle() -> Option<&'static str> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "--mount", "true"]);
    become_user(&mut unshare, USER);
    let is_allowed = unshare.output().is_ok_and(|output| output.status.success());
    (!is_allowed).then_some("this machine does not allow user namespaces to ordinary users")
}

/// A Python of the version of an environment that the user can run: its own, or that of the system.
fn readable_python(environment: &Path) -> Option<PathBuf> {
    let own = environment.join("bin/python3").canonicalize().unwrap();
    let name = own.file_name().unwrap().to_owned();
    let runs = |path: &PathBuf| {
        let mut command = Command::new(path);
        command.arg("--version");
        become_user(&mut command, USER);
        command.output().is_ok_and(|output| output.status.success())
    };
    [own, Path::new("/usr/bin").join(name)].into_iter().find(runs)
}

/// Makes an environment that the user can read: the same files with other links, at another path.
fn share(environment: &Path, into: &Path, python: &Path) {
    let copied = Command::new("cp").arg("-al").arg(environment).arg(into).status().unwrap();
    assert!(copied.success());
    let shared = into.join(environment.file_name().unwrap());
    fs::remove_dir_all(shared.join("bin")).unwrap();
    fs::create_dir(shared.join("bin")).unwrap();
    let (old, new) = (environment.display().to_string(), shared.display().to_string());
    for entry in fs::read_dir(environment.join("bin")).unwrap() {
        let (path, target) =
            (entry.as_ref().unwrap().path(), shared.join("bin").join(entry.unwrap().file_name()));
        match fs::read_link(&path) {
            Ok(link) if link.is_absolute() => symlink(python, target).unwrap(),
            Ok(link) => symlink(link, target).unwrap(),
            Err(_) => {
                match fs::read_to_string(&path) {
                    Ok(script) => fs::write(&target, script.replace(&old, &new)).unwrap(),
                    Err(_) => drop(fs::copy(&path, &target).unwrap()),
                }
                fs::set_permissions(target, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
    let home = python.parent().unwrap().display();
    replace(&shared.join("pyvenv.cfg"), &format!("home = {home}\ninclude-system-site-packages = false\n"));
    let description = shared.join("quintet-environment.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&description).unwrap()).unwrap();
    value["directory"] = json!(shared);
    if python.starts_with("/usr") {
        value["interpreter"] = json!([]);
    }
    replace(&description, &value.to_string());
}

/// Replaces a file, and not what other links to it show.
fn replace(path: &Path, text: &str) {
    fs::remove_file(path).unwrap();
    fs::write(path, text).unwrap();
}
