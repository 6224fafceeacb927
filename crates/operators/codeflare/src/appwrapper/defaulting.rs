//! Defaults of AppWrappers: the queue, and the user who created it.

use quintet_api::appwrapper::metadata::{USER, USER_ID};
use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_api::names::{self, MAX_LABEL};
use quintet_controller::webhook::UserInfo;
use serde_json::{Map, Value};

/// The label that names the queue.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Sets the labels of an AppWrapper that `user` creates.
pub(crate) fn set_defaults(appwrapper: &mut Value, user: &UserInfo, config: &AppWrapperConfiguration) {
    let Some(metadata) = appwrapper.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert(Value::Null);
    if labels.is_null() {
        *labels = Value::Object(Map::new());
    }
    // The API server rejects anything else.
    let Some(labels) = labels.as_object_mut() else { return };
    if !config.default_queue_name.is_empty() && !labels.contains_key(QUEUE) {
        labels.insert(QUEUE.to_owned(), config.default_queue_name.clone().into());
    }
    labels.insert(USER.to_owned(), sanitized(&user.username).into());
    labels.insert(USER_ID.to_owned(), sanitized(&user.uid).into());
}

/// A text as a label value, as upstream's `SanitizeLabel` makes it.
fn sanitized(text: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let replaced: String =
        names::head(text, MAX_LABEL).chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
    replaced.trim_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(labels: &Value, queue: &str) -> Value {
        let config = AppWrapperConfiguration {
            default_queue_name: queue.into(),
            ..AppWrapperConfiguration::default()
        };
        let user = UserInfo { username: "system:admin".into(), ..UserInfo::default() };
        let mut object = json!({"metadata": {"name": "w", "labels": labels}});
        set_defaults(&mut object, &user, &config);
        object["metadata"]["labels"].take()
    }

    #[test]
    fn the_user_is_recorded_whatever_the_user_says() {
        assert_eq!(defaulted(&Value::Null, ""), json!({USER: "system_admin", USER_ID: ""}));
        let forged = json!({USER: "somebody", "a": "b"});
        assert_eq!(defaulted(&forged, ""), json!({USER: "system_admin", USER_ID: "", "a": "b"}));
    }

    #[test]
    fn the_default_queue_is_for_those_who_name_none() {
        assert_eq!(defaulted(&Value::Null, "q")[QUEUE], "q");
        assert_eq!(defaulted(&json!({QUEUE: "own"}), "q")[QUEUE], "own");
    }

    #[test]
    fn names_of_users_become_label_values() {
        let rows = [
            ("alice", "alice".to_owned()),
            ("system:serviceaccount:ns:some-account", "system_serviceaccount_ns_some-account".to_owned()),
            ("-_.x._-", "x".to_owned()),
            ("", String::new()),
        ];
        for (name, label) in rows {
            assert_eq!(sanitized(name), label);
        }
        assert_eq!(sanitized(&"a".repeat(70)), "a".repeat(63));
        assert!(names::is_label_value(&sanitized("jürgen@example.com")));
    }
}
