//! The namespaces that are workspaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use quintet_api::names::problems;
use quintet_api::selector::{Requirement, Selector, Test};
use serde_json::json;

use super::Inputs;

/// The selector of workspaces in the form of `kubectl -l`, sorted as client-go does. The error is for the user to fix.
pub(super) fn selector(inputs: &Inputs<'_>) -> Result<Option<String>, String> {
    inputs.mlflow.spec.workspace_label_selector.as_ref().map_or(Ok(None), text)
}

fn text(given: &LabelSelector) -> Result<Option<String>, String> {
    let invalid = |error: String| {
        format!("failed to convert MLflow spec to Helm values: invalid workspaceLabelSelector: {error}")
    };
    check(given).map_err(invalid)?;
    let selector = Selector::try_from(given).map_err(|error| invalid(error.to_string()))?;
    let mut requirements = selector.requirements().to_vec();
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    for Requirement { test, .. } in &mut requirements {
        if let Test::In(values) | Test::NotIn(values) = test {
            values.sort();
            values.dedup();
        }
    }
    let text = requirements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Ok((!text.is_empty()).then_some(text))
}

/// What apimachinery's `LabelSelectorAsSelector` says of the first requirement that is not valid.
fn check(given: &LabelSelector) -> Result<(), String> {
    for (key, value) in given.match_labels.iter().flatten() {
        told(&syntax(key, std::slice::from_ref(value)))?;
    }
    given.match_expressions.iter().flatten().try_for_each(check_expression)
}

fn check_expression(expression: &LabelSelectorRequirement) -> Result<(), String> {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let values = values.as_deref().unwrap_or_default();
    let problem = match operator.as_str() {
        "In" | "NotIn" if values.is_empty() => Some(
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned(),
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let values = json!(values);
            Some(format!(
                "values: Invalid value: {values}: values set must be empty for exists and does not exist"
            ))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        _ => return Err(format!("{operator:?} is not a valid label selector operator")),
    };
    let mut found = syntax(key, values);
    // What is wrong with the key comes first.
    let position = usize::from(found.first().is_some_and(|first| first.starts_with("key: ")));
    found.splice(position..position, problem);
    told(&found)
}

/// What is wrong with the key and the values themselves.
fn syntax(key: &str, values: &[String]) -> Vec<String> {
    let invalid = |path: String, text: &str, problems: Vec<String>| {
        (!problems.is_empty()).then(|| format!("{path}: Invalid value: {text:?}: {}", problems.join("; ")))
    };
    let key_problem = invalid("key".to_owned(), key, problems::qualified_name(key));
    let of_value = |(number, value): (usize, &String)| {
        invalid(format!("values[{number}][{key}]"), value, problems::label_value(value))
    };
    key_problem.into_iter().chain(values.iter().enumerate().filter_map(of_value)).collect()
}

/// Several errors are listed in brackets.
fn told(problems: &[String]) -> Result<(), String> {
    match problems {
        [] => Ok(()),
        [problem] => Err(problem.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, operator: &str, values: &[&str]) -> Result<Option<String>, String> {
        text(&LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: (!values.is_empty()).then(|| values.iter().map(ToString::to_string).collect()),
            }]),
        })
    }

    #[test]
    fn requirements_are_printed_as_kubectl_takes_them() {
        assert_eq!(of("a", "In", &["y", "x", "y"]), Ok(Some("a in (x,y)".to_owned())));
        assert_eq!(of("a", "DoesNotExist", &[]), Ok(Some("!a".to_owned())));
        assert_eq!(text(&LabelSelector::default()), Ok(None));
    }

    #[test]
    fn a_selector_that_is_not_valid_is_explained_as_upstream() {
        let label = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
                     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        let cases = [
            (of("a", "Odd", &["b"]), "\"Odd\" is not a valid label selector operator".to_owned()),
            (
                of("a", "In", &[]),
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
                    .to_owned(),
            ),
            (
                of("a", "Exists", &["b"]),
                "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist"
                    .to_owned(),
            ),
            (of("a", "In", &["b", "c d"]), format!("values[1][a]: Invalid value: \"c d\": {label}")),
        ];
        for (result, error) in cases {
            let prefix = "failed to convert MLflow spec to Helm values: invalid workspaceLabelSelector: ";
            assert_eq!(result, Err(format!("{prefix}{error}")));
        }
        let both = of("a b", "Exists", &["c"]).unwrap_err();
        assert!(both.contains("workspaceLabelSelector: [key: Invalid value: \"a b\": "), "{both}");
    }
}
