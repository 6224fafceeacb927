//! Secrets of databases, whose passwords are made up once.
//!
//! They are made by calls, not by plans: a plan is stored and printed, and cannot be random.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use k8s_openapi::api::core::v1::Secret;
use quintet_controller::api::{Api, PatchKind};
use quintet_controller::{ApiKind, Class, Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Bytes of a password, as upstream has them.
const PASSWORD_BYTES: usize = 16;

/// Makes a Secret, or completes one that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialsRequest {
    pub(crate) key: ObjectKey,
    pub(crate) labels: Map<String, Value>,
    /// The owner reference.
    pub(crate) owner: Value,
    /// What is not secret, by key.
    pub(crate) values: BTreeMap<String, String>,
    /// The key of the password.
    pub(crate) password_key: String,
    /// Whether one that exists gets what it lacks; otherwise it is left alone.
    pub(crate) completes: bool,
}

impl fmt::Display for CredentialsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ensure the credentials in Secret {}", self.key)
    }
}

impl CredentialsRequest {
    /// Whether there is anything to do.
    pub(crate) async fn is_needed(&self, api: &Api) -> Result<bool, Error> {
        Ok(match api.get(&ApiKind::of::<Secret>(), &self.key).await? {
            Some(text) => self.completion(&self.decode(&text)?, "").is_some(),
            None => true,
        })
    }

    /// Makes or completes the Secret.
    pub(crate) async fn carry_out(&self, api: &Api) -> Result<(), Error> {
        let kind = ApiKind::of::<Secret>();
        let failed = |cause: String| Error::new(Class::Transient, format!("cannot {self}"), cause);
        let password = password().map_err(failed)?;
        if let Some(text) = api.get(&kind, &self.key).await? {
            return match self.completion(&self.decode(&text)?, &password) {
                Some(patch) => api.patch(&kind, &self.key, None, &PatchKind::Merge, &patch).await.map(drop),
                None => Ok(()),
            };
        }
        let mut metadata = json!({
            "name": self.key.name(), "namespace": self.key.namespace(), "ownerReferences": [self.owner],
        });
        if !self.labels.is_empty() {
            metadata["labels"] = Value::Object(self.labels.clone());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata,
            "data": self.data(&password),
        });
        match api.create(&kind, &self.key, &object).await {
            // Another attempt was faster; the next reconcile looks at it.
            Err(error) if error.has_code(409) => Ok(()),
            created => created.map(drop),
        }
    }

    fn decode(&self, text: &str) -> Result<Value, Error> {
        let failed = |error: serde_json::Error| {
            Error::new(Class::Transient, format!("cannot decode Secret {}", self.key), error.to_string())
        };
        serde_json::from_str(text).map_err(failed)
    }

    fn data(&self, password: &str) -> Map<String, Value> {
        let values = self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = values.chain([(self.password_key.as_str(), password)]);
        all.map(|(key, value)| (key.to_owned(), STANDARD.encode(value).into())).collect()
    }

    /// What a Secret lacks: values, labels and the owner. Values that it has stay.
    fn completion(&self, live: &Value, password: &str) -> Option<Value> {
        if !self.completes {
            return None;
        }
        let mut data = self.data(password);
        data.retain(|key, _| live["data"][key].as_str().is_none_or(str::is_empty));
        let mut labels = self.labels.clone();
        labels.retain(|name, value| live["metadata"]["labels"][name] != *value);
        let owners = live["metadata"]["ownerReferences"].as_array();
        let is_owned = owners.into_iter().flatten().any(|owner| owner["uid"] == self.owner["uid"]);
        if data.is_empty() && labels.is_empty() && is_owned {
            return None;
        }
        let mut metadata =
            json!({ "resourceVersion": live["metadata"]["resourceVersion"], "labels": labels });
        if !is_owned {
            metadata["ownerReferences"] = json!([self.owner]);
        }
        Some(json!({ "metadata": metadata, "data": data }))
    }
}

fn password() -> Result<String, String> {
    let mut bytes = [0; PASSWORD_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(URL_SAFE.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(completes: bool) -> CredentialsRequest {
        CredentialsRequest {
            key: ObjectKey::new("ns", "db"),
            labels: json!({"app": "a"}).as_object().unwrap().clone(),
            owner: json!({"uid": "1"}),
            values: [("user".to_owned(), "me".to_owned())].into(),
            password_key: "password".to_owned(),
            completes,
        }
    }

    #[test]
    fn passwords_are_random_and_fit_for_urls() {
        let (one, other) = (password().unwrap(), password().unwrap());
        assert_eq!(one.len(), 24);
        assert_ne!(one, other);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte)));
    }

    #[test]
    fn a_secret_gets_what_it_lacks_and_keeps_what_it_has() {
        let live = json!({"metadata": {"resourceVersion": "7"}, "data": {"user": "eW91"}});
        let patch = request(true).completion(&live, "secret").unwrap();
        assert_eq!(patch["data"], json!({"password": STANDARD.encode("secret")}));
        assert_eq!(patch["metadata"]["labels"], json!({"app": "a"}));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([{"uid": "1"}]));
        assert_eq!(request(false).completion(&live, "secret"), None);
        let complete = json!({
            "metadata": {"labels": {"app": "a", "more": "b"}, "ownerReferences": [{"uid": "1"}]},
            "data": {"user": "eW91", "password": "eA=="},
        });
        assert_eq!(request(true).completion(&complete, "secret"), None);
    }
}
