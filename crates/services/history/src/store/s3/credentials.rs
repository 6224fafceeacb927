//! Keys that sign requests: those of the environment, or issued to a pod, a container or an instance.

use std::time::Duration;

use http::Request;
use serde::Deserialize;

use super::super::config::Variables;
use super::super::net::{Http, percent_encoded};
use super::super::token::{Expiring, ask, read};
use super::super::{Result, StoreError, xml};

/// Issued keys last an hour or more. They are asked for again after this time.
const AGE: Duration = Duration::from_mins(12);

/// Who issues keys, and names the variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Issuer {
    Aws,
    Aliyun,
}

impl Issuer {
    /// The name in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aws => "S3",
            Self::Aliyun => "OSS",
        }
    }

    /// The variables with a key, its secret and its token.
    fn variables(self) -> [&'static str; 3] {
        match self {
            Self::Aws => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
            Self::Aliyun => [
                "ALIBABA_CLOUD_ACCESS_KEY_ID",
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
                "ALIBABA_CLOUD_SECURITY_TOKEN",
            ],
        }
    }
}

/// A key that signs requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

/// Where credentials come from.
pub(super) struct Provider {
    issuer: Issuer,
    region: String,
    variables: Variables,
    issued: Expiring<Option<Credentials>>,
}

/// Keys as instances and containers of both clouds write them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Issued {
    access_key_id: String,
    #[serde(alias = "AccessKeySecret")]
    secret_access_key: String,
    #[serde(alias = "SecurityToken", default)]
    token: Option<String>,
}

impl From<Issued> for Credentials {
    fn from(issued: Issued) -> Self {
        Self { key: issued.access_key_id, secret: issued.secret_access_key, token: issued.token }
    }
}

impl Provider {
    pub(super) fn new(issuer: Issuer, region: &str, variables: Variables) -> Self {
        Self { issuer, region: region.to_owned(), variables, issued: Expiring::new() }
    }

    /// Credentials of the environment, or those that were issued. Without any, requests are not signed, as those to public
    /// buckets.
    pub(super) async fn get(&self, http: &Http) -> Result<Option<Credentials>> {
        let [key, secret, token] = self.issuer.variables().map(|name| (self.variables)(name));
        if let (Some(key), Some(secret)) = (key, secret) {
            return Ok(Some(Credentials { key, secret, token }));
        }
        let issue = async {
            let issued = match self.issuer {
                Issuer::Aws => self.of_amazon(http).await?,
                Issuer::Aliyun => self.of_aliyun(http).await?,
            };
            Ok((issued, AGE))
        };
        self.issued.get(issue).await
    }

    async fn of_amazon(&self, http: &Http) -> Result<Option<Credentials>> {
        let variable = |name: &str| (self.variables)(name);
        if let (Some(role), Some(file)) = (variable("AWS_ROLE_ARN"), variable("AWS_WEB_IDENTITY_TOKEN_FILE"))
        {
            let form = format!(
                "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=quintet&RoleArn={}&WebIdentityToken={}",
                percent_encoded(&role, false),
                percent_encoded(read(&file, "S3")?.trim(), false)
            );
            let url = format!("https://sts.{}.amazonaws.com/", self.region);
            let request = Request::post(url).header("Content-Type", "application/x-www-form-urlencoded");
            let response = ask(http, request, form, "S3").await?;
            let text = |name: &str| xml::text(&response, name).unwrap_or_default();
            return Ok(Some(Credentials {
                key: text("AccessKeyId"),
                secret: text("SecretAccessKey"),
                token: xml::text(&response, "SessionToken"),
            }));
        }
        if let Some(url) = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            let mut request = Request::get(url);
            if let Some(token) = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .and_then(|it| std::fs::read_to_string(it).ok())
            {
                request = request.header("Authorization", token.trim());
            }
            return issued(&ask(http, request, "", "S3").await?, "S3").map(Some);
        }
        if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let metadata = "http://169.254.169.254/latest";
        let request = Request::put(format!("{metadata}/api/token"))
            .header("X-aws-ec2-metadata-token-ttl-seconds", "600");
        // Not on an instance: requests go without credentials, as to a public bucket.
        let Ok(token) = ask(http, request, "", "S3").await else { return Ok(None) };
        let path = format!("{metadata}/meta-data/iam/security-credentials/");
        let get = |url: &str| Request::get(url).header("X-aws-ec2-metadata-token", &token);
        let role = ask(http, get(&path), "", "S3").await?;
        let role = role.lines().next().unwrap_or_default();
        issued(&ask(http, get(&format!("{path}{role}")), "", "S3").await?, "S3").map(Some)
    }

    /// A role of Aliyun for a service account: the variables are those that its admission webhook sets.
    async fn of_aliyun(&self, http: &Http) -> Result<Option<Credentials>> {
        let variable = |name: &str| {
            let value = (self.variables)(name);
            value.ok_or_else(|| {
                StoreError(format!(
                    "no credentials for OSS: {name} is not set; set ALIBABA_CLOUD_ACCESS_KEY_ID and \
                     ALIBABA_CLOUD_ACCESS_KEY_SECRET, or let the pod's service account have a role"
                ))
            })
        };
        let role = variable("ALIBABA_CLOUD_ROLE_ARN")?;
        let provider = variable("ALIBABA_CLOUD_OIDC_PROVIDER_ARN")?;
        let token = read(&variable("ALIBABA_CLOUD_OIDC_TOKEN_FILE")?, "OSS")?;
        let endpoint = (self.variables)("ALIBABA_CLOUD_STS_ENDPOINT")
            .unwrap_or_else(|| format!("https://sts.{}.aliyuncs.com", self.region));
        let form = format!(
            "Action=AssumeRoleWithOIDC&Format=JSON&Version=2015-04-01&RoleSessionName=quintet&RoleArn={}&OIDCProviderArn={}&OIDCToken={}",
            percent_encoded(&role, false),
            percent_encoded(&provider, false),
            percent_encoded(token.trim(), false)
        );
        let request = Request::post(endpoint).header("Content-Type", "application/x-www-form-urlencoded");
        let response: serde_json::Value = super::super::token::ask_json(http, request, form, "OSS").await?;
        issued(&response["Credentials"].to_string(), "OSS").map(Some)
    }
}

fn issued(text: &str, what: &str) -> Result<Credentials> {
    let issued = serde_json::from_str::<Issued>(text);
    issued.map(Credentials::from).map_err(|error| StoreError(format!("no credentials for {what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::issued;

    #[test]
    fn keys_of_both_clouds_are_read() {
        for text in [
            r#"{"AccessKeyId":"k","SecretAccessKey":"s","Token":"t","Expiration":"2026-01-01T00:00:00Z"}"#,
            r#"{"AccessKeyId":"k","AccessKeySecret":"s","SecurityToken":"t"}"#,
        ] {
            let found = issued(text, "x").map(|it| (it.key, it.secret, it.token));
            assert_eq!(found.ok(), Some(("k".to_owned(), "s".to_owned(), Some("t".to_owned()))), "{text}");
        }
        assert!(issued("null", "OSS").is_err());
    }
}
