//! How an account is reached: with a connection string, or as an identity of Entra.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;

use super::super::config::Variables;
use super::super::net::{Http, percent_encoded};
use super::super::token::{Expiring, ask_json, bearer, exchange, read};
use super::super::{Result, StoreError};

const RESOURCE: &str = "https://storage.azure.com/";

/// The account of Azure's emulator, which is public.
const DEVELOPMENT: &str = "AccountName=devstoreaccount1;\
    AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;\
    BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1";

/// An account and how to reach it.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Access {
    /// The URL of the account, without a slash at its end.
    pub(super) account: String,
    pub(super) authorization: Authorization,
}

/// How requests are authorized.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    /// The key of the account signs them.
    Key { account: String, key: Vec<u8> },
    /// They carry a shared access signature.
    Signature(String),
    /// As the identity of the service account.
    Workload,
    /// As the first identity that there is: a client with a secret, the service account, or the machine.
    Identity,
}

/// The access that settings describe. Without a mode, a connection string is preferred.
pub(in super::super) fn access(
    mode: &str,
    connection: Option<String>,
    account: Option<String>,
) -> std::result::Result<Access, String> {
    const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
    const ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT_URL";
    let missing = |names: &str| format!("the storage back end azureblob needs {names}");
    let mode = mode.trim().to_ascii_lowercase();
    let authorization = match (mode.as_str(), connection) {
        ("" | "connection_string", Some(connection)) => return parse(&connection),
        ("connection_string", None) => return Err(missing(CONNECTION)),
        ("", None) if account.is_none() => return Err(missing(&format!("{CONNECTION} or {ACCOUNT}"))),
        ("workload_identity", _) => Authorization::Workload,
        ("default" | "", _) => Authorization::Identity,
        (other, _) => {
            return Err(format!(
                "AZURE_STORAGE_AUTH_MODE {other:?} is none of connection_string, workload_identity or default"
            ));
        }
    };
    let account = account.ok_or_else(|| missing(ACCOUNT))?;
    Ok(Access { account: account.trim_end_matches('/').to_owned(), authorization })
}

/// Reads a connection string.
fn parse(connection: &str) -> std::result::Result<Access, String> {
    let invalid = |why: &str| format!("AZURE_STORAGE_CONNECTION_STRING {why}");
    let pairs: BTreeMap<String, &str> = connection
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    if pairs.get("usedevelopmentstorage").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        return parse(DEVELOPMENT);
    }
    let name = pairs.get("accountname").copied().unwrap_or_default();
    let endpoint = match pairs.get("blobendpoint") {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None if name.is_empty() => return Err(invalid("has neither AccountName nor BlobEndpoint")),
        None => {
            let protocol = pairs.get("defaultendpointsprotocol").copied().unwrap_or("https");
            let suffix = pairs.get("endpointsuffix").copied().unwrap_or("core.windows.net");
            format!("{protocol}://{name}.blob.{suffix}")
        }
    };
    let authorization = match (pairs.get("accountkey"), pairs.get("sharedaccesssignature")) {
        (Some(_), _) if name.is_empty() => return Err(invalid("has an AccountKey, but no AccountName")),
        (Some(key), _) => {
            let key = STANDARD.decode(key).map_err(|_| invalid("has an AccountKey that is no base64"))?;
            Authorization::Key { account: name.to_owned(), key }
        }
        (None, Some(signature)) => Authorization::Signature(signature.trim_start_matches('?').to_owned()),
        (None, None) => return Err(invalid("has neither AccountKey nor SharedAccessSignature")),
    };
    Ok(Access { account: endpoint, authorization })
}

/// Where tokens come from.
pub(super) struct Provider {
    authorization: Authorization,
    variables: Variables,
    issued: Expiring<String>,
}

impl Provider {
    pub(super) fn new(authorization: Authorization, variables: Variables) -> Self {
        Self { authorization, variables, issued: Expiring::new() }
    }

    pub(super) fn authorization(&self) -> &Authorization {
        &self.authorization
    }

    pub(super) async fn token(&self, http: &Http) -> Result<String> {
        self.issued.get(self.issue(http)).await
    }

    async fn issue(&self, http: &Http) -> Result<(String, Duration)> {
        let variable = |name: &str| (self.variables)(name);
        let has = |name: &str| variable(name).is_some();
        if self.authorization == Authorization::Identity {
            if has("AZURE_CLIENT_SECRET") && has("AZURE_TENANT_ID") && has("AZURE_CLIENT_ID") {
                let secret = self.needed("AZURE_CLIENT_SECRET")?;
                return self.of_client(http, &[("client_secret", &secret)]).await;
            }
            if !has("AZURE_FEDERATED_TOKEN_FILE") {
                return self.of_machine(http).await;
            }
        }
        let assertion = read(&self.needed("AZURE_FEDERATED_TOKEN_FILE")?, "Azure")?;
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        self.of_client(http, &[("client_assertion_type", kind), ("client_assertion", assertion.trim())]).await
    }

    /// A variable that Azure's admission webhook sets in pods with an identity.
    fn needed(&self, name: &str) -> Result<String> {
        (self.variables)(name).ok_or_else(|| {
            StoreError(format!(
                "no credentials for Azure: {name} is not set; the service account of the pod needs an identity"
            ))
        })
    }

    async fn of_client(&self, http: &Http, proof: &[(&str, &str)]) -> Result<(String, Duration)> {
        let authority = (self.variables)("AZURE_AUTHORITY_HOST");
        let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com/".to_owned());
        let tenant = self.needed("AZURE_TENANT_ID")?;
        let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let (client, scope) = (self.needed("AZURE_CLIENT_ID")?, format!("{RESOURCE}.default"));
        let mut form =
            vec![("grant_type", "client_credentials"), ("client_id", client.as_str()), ("scope", &scope)];
        form.extend(proof);
        exchange(http, &url, &form, "Azure").await
    }

    async fn of_machine(&self, http: &Http) -> Result<(String, Duration)> {
        let mut url = format!(
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource={}",
            percent_encoded(RESOURCE, false)
        );
        if let Some(client) = (self.variables)("AZURE_CLIENT_ID") {
            url = format!("{url}&client_id={}", percent_encoded(&client, false));
        }
        let response = ask_json(http, Request::get(url).header("Metadata", "true"), "", "Azure").await?;
        bearer(&response, "Azure")
    }
}

#[cfg(test)]
mod tests {
    use super::{Authorization, access};

    #[test]
    fn connection_strings_are_read() {
        let key = |account: &str| Authorization::Key { account: account.to_owned(), key: b"key".to_vec() };
        for (connection, account, authorization) in [
            (
                "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;EndpointSuffix=example.com;",
                "http://a.blob.example.com",
                key("a"),
            ),
            ("accountname=a;accountkey=a2V5", "https://a.blob.core.windows.net", key("a")),
            (
                "BlobEndpoint=https://a.example.com/;SharedAccessSignature=?sv=1&sig=x%3D",
                "https://a.example.com",
                Authorization::Signature("sv=1&sig=x%3D".to_owned()),
            ),
        ] {
            let found = access("", Some(connection.to_owned()), None).expect(connection);
            assert_eq!((found.account.as_str(), found.authorization), (account, authorization));
        }
        let development = access("Connection_String", Some("UseDevelopmentStorage=true".to_owned()), None);
        assert!(development.is_ok_and(|it| it.account == "http://127.0.0.1:10000/devstoreaccount1"));
        for connection in ["", "AccountName=a", "AccountKey=a2V5", "AccountName=a;AccountKey=%"] {
            assert!(access("", Some(connection.to_owned()), None).is_err(), "{connection}");
        }
    }

    #[test]
    fn a_mode_chooses_among_several() {
        let both = |mode: &str| {
            let connection = Some("AccountName=a;AccountKey=a2V5".to_owned());
            access(mode, connection, Some("https://b.example.com/".to_owned())).map(|it| it.account)
        };
        assert_eq!(both("").as_deref(), Ok("https://a.blob.core.windows.net"));
        assert_eq!(both("default").as_deref(), Ok("https://b.example.com"));
        assert_eq!(both(" Workload_Identity ").as_deref(), Ok("https://b.example.com"));
    }
}
