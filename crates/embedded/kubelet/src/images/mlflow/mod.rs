//! What environments with MLflow get besides packages, so that they can stand for the images of MLflow operators.
//!
//! These images have Python 3.12, and plugins that the package index has not: `kubernetes-auth` and `kubernetes://`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

const PACKAGE: &str = "mlflow";
/// The interpreter that scripts for these images name.
const INTERPRETER: &str = "python3.12";
const PLUGIN: &str = include_str!("quintet_mlflow.py");
/// How Python finds a plugin: by the metadata of a package.
const METADATA: &str = "Metadata-Version: 2.1\nName: quintet-mlflow\nVersion: 1\n";
const ENTRY_POINTS: &str = "[mlflow.app]
kubernetes-auth = quintet_mlflow:create_app

[mlflow.workspace_provider]
kubernetes = quintet_mlflow:Namespaces
";

/// What identifies the additions to an environment with these packages; empty if there are none.
pub(super) fn identity(packages: &[String]) -> &'static str {
    if is_in(packages) { PLUGIN } else { "" }
}

/// Completes an environment whose packages are installed; `modules` is where Python looks for them.
pub(super) fn complete(environment: &Path, modules: &Path, packages: &[String]) -> io::Result<()> {
    if !is_in(packages) {
        return Ok(());
    }
    let interpreter = environment.join("bin").join(INTERPRETER);
    if !interpreter.exists() {
        symlink("python3", interpreter)?;
    }
    fs::write(modules.join("quintet_mlflow.py"), PLUGIN)?;
    let metadata = modules.join("quintet_mlflow-1.dist-info");
    fs::create_dir_all(&metadata)?;
    fs::write(metadata.join("METADATA"), METADATA)?;
    fs::write(metadata.join("entry_points.txt"), ENTRY_POINTS)
}

fn is_in(packages: &[String]) -> bool {
    let name = |requirement: &str| {
        let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
        requirement.get(..end.unwrap_or(requirement.len())).is_some_and(|name| name == PACKAGE)
    };
    packages.iter().any(|requirement| name(requirement))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_known_by_the_name_of_the_package() {
        let is_in = |requirement: &str| is_in(&["boto3".to_owned(), requirement.to_owned()]);
        assert!(is_in("mlflow==3.14.0") && is_in("mlflow") && is_in("mlflow[extras]>=3"));
        assert!(!is_in("mlflow-skinny==3.14.0") && !is_in("ray"));
    }

    #[test]
    fn an_environment_with_mlflow_has_the_interpreter_and_the_plugins_of_its_images() {
        let directory = tempfile::tempdir().unwrap();
        let modules = directory.path().join("lib");
        for path in [&modules, &directory.path().join("bin")] {
            fs::create_dir(path).unwrap();
        }
        complete(directory.path(), &modules, &["ray".to_owned()]).unwrap();
        assert_eq!(fs::read_dir(&modules).unwrap().count(), 0);
        complete(directory.path(), &modules, &["mlflow==3.14.0".to_owned()]).unwrap();
        let interpreter = fs::read_link(directory.path().join("bin/python3.12")).unwrap();
        assert_eq!(interpreter, Path::new("python3"));
        let found = std::process::Command::new("python3")
            .env("PYTHONPATH", &modules)
            .args(["-c", "from importlib.metadata import entry_points as e; print(*e(group='mlflow.app'))"])
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(found.contains("quintet_mlflow:create_app"), "{found}");
    }
}
