//! The only place that writes to the terminal.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

/// How objects are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// YAML, one document per object.
    #[default]
    Yaml,
    /// JSON, one List.
    Json,
}

/// Prints to standard output. A closed pipe, as with `head`, is not an error; a full disk is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the output")
        }
        _ => Ok(()),
    }
}

/// Prints to standard error.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints objects in a format that `kubectl apply -f -` takes.
pub(crate) fn print_objects(objects: &[serde_json::Value], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Yaml => {
            let mut text = String::new();
            for object in objects {
                text += "---\n";
                text += &yaml(object)?;
            }
            print(&text)
        }
        Format::Json => {
            print_json(&serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects }))
        }
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n"))
}

/// Prints a value as YAML.
pub(crate) fn print_yaml(value: &impl Serialize) -> anyhow::Result<()> {
    print(&yaml(value)?)
}

fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(value).context("cannot write YAML")?;
    Ok(text.trim_end().to_owned() + "\n")
}

/// The exit code of the program; an error is printed on one line.
pub(crate) fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {}\n", one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes; a cause is not repeated.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Rows in columns as wide as their widest cell.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_without_repetition() {
        let error =
            anyhow::anyhow!("no such file").context("cannot read x: no such file").context("cannot\n start");
        assert_eq!(one_line(&error), "cannot start: cannot read x: no such file");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "long".into()], vec!["bbb".into(), String::new()]];
        assert_eq!(table(&["X", "Y"], &rows), "X     Y\na     long\nbbb\n");
    }
}
