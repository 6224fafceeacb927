//! What a ClusterProfile says of a cluster, and which program gives credentials for it. Pure.
//!
//! Who writes the status of ClusterProfiles decides where the operator connects to, but not what it runs: programs are those
//! of the configuration, and no file of this machine is read. As `BuildConfigFromCP` of sigs.k8s.io/cluster-inventory-api.

use http::Uri;
use kube::config::{Cluster, Context, Kubeconfig, NamedCluster, NamedContext};
use quintet_api::config::kueue::ClusterProfileAccess;
use quintet_api::kueue::reasons::MultiKueueClusterActiveReason as Reason;
use quintet_api::names::problems::dns_subdomain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::kubeconfig::Problem;
use super::exec::Program;
use super::{Access, ByProfile, digest};

/// The extension of a cluster whose value is handed to the program.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// What matters of a ClusterProfile.
#[derive(Default, Deserialize)]
pub(in super::super) struct ClusterProfile {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    access_providers: Vec<Provider>,
    /// The former name; where both have a provider, the newer one counts.
    credential_providers: Vec<Provider>,
}

/// One way to the cluster.
#[derive(Deserialize)]
struct Provider {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

/// Reads a ClusterProfile.
pub(in super::super) fn decode(text: &str) -> Result<ClusterProfile, serde_json::Error> {
    serde_json::from_str(text)
}

impl ClusterProfile {
    fn cluster_of(&self, provider: &str) -> Option<&Cluster> {
        let mut all = self.status.access_providers.iter().chain(&self.status.credential_providers);
        all.find(|own| own.name == provider).map(|own| &own.cluster)
    }
}

/// How the cluster of a ClusterProfile is reached: by the first provider of the configuration that the profile has, too.
pub(in super::super) fn access(
    name: &str,
    profile: &ClusterProfile,
    configured: Option<&ClusterProfileAccess>,
) -> Result<Access, Problem> {
    let bad = |message: String| Problem::new(Reason::BadClusterProfile, message);
    let configured = configured.ok_or_else(|| bad("no access provider configured".to_owned()))?;
    let (provider, cluster) = configured
        .providers()
        .iter()
        .find_map(|provider| Some((provider, profile.cluster_of(&provider.name)?)))
        .ok_or_else(|| bad(format!("no matching cluster accessor found for cluster profile {name:?}")))?;
    let bad_config = |why: &str| Problem::new(Reason::BadRestConfig, why);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let kept = Cluster {
        server: given(&cluster.server),
        certificate_authority_data: given(&cluster.certificate_authority_data),
        tls_server_name: given(&cluster.tls_server_name),
        proxy_url: given(&cluster.proxy_url),
        ..Cluster::default()
    };
    if !is_server(kept.server.as_deref().unwrap_or_default()) {
        return Err(bad_config("untrusted server endpoint"));
    }
    let proxy = kept.proxy_url.as_deref().map(str::parse::<Uri>).transpose();
    let proxy = proxy.map_err(|_| bad_config("proxy-url is not a URL"))?;
    let program = Program::new(&provider.exec_config, &told_of(&kept, extension_of(cluster)));
    let parts = (&kept.server, &kept.certificate_authority_data, &kept.tls_server_name);
    let digest = digest((parts, &proxy, &program));
    let profile = Some(ByProfile { program, proxy });
    Ok(Access { kubeconfig: kubeconfig_of(name, kept), profile, digest })
}

/// Whether a text is the URL of a host with a DNS name or an address. As `isValidHostname` of Kueue.
fn is_server(url: &str) -> bool {
    let Ok(uri) = url.to_lowercase().parse::<Uri>() else { return false };
    let Some(host) = uri.host().filter(|_| uri.scheme().is_some()) else { return false };
    let is_address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    is_address || dns_subdomain(host).is_empty()
}

/// What a profile has for the program.
fn extension_of(cluster: &Cluster) -> Option<&Value> {
    let extensions = cluster.extensions.iter().flatten();
    extensions.filter(|own| own.name == EXTENSION).map(|own| &own.extension).next_back()
}

/// What a program is told of the cluster, if it wants to know. As `Cluster` of client.authentication.k8s.io.
fn told_of(cluster: &Cluster, extension: Option<&Value>) -> Value {
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let mut told = json!({});
    for (field, value) in [
        ("server", text(&cluster.server)),
        ("tls-server-name", text(&cluster.tls_server_name)),
        ("certificate-authority-data", text(&cluster.certificate_authority_data)),
        ("proxy-url", text(&cluster.proxy_url)),
        ("config", extension.cloned()),
    ] {
        if let Some(value) = value {
            told[field] = value;
        }
    }
    told
}

/// A kubeconfig without credentials.
fn kubeconfig_of(name: &str, cluster: Cluster) -> Kubeconfig {
    let name = || name.to_owned();
    let context = Context { cluster: name(), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(status: &Value) -> ClusterProfile {
        decode(&json!({ "metadata": { "name": "p" }, "spec": {}, "status": status }).to_string()).unwrap()
    }

    fn configured(list: &str, names: &[&str]) -> ClusterProfileAccess {
        let provider =
            |name: &&str| json!({ "name": name, "execConfig": { "command": format!("/bin/{name}") } });
        let providers: Vec<Value> = names.iter().map(provider).collect();
        serde_json::from_value(json!({ list: providers })).unwrap()
    }

    /// Which program is run for which server; the error is the reason and the message.
    fn chosen(status: &Value, configured: Option<&ClusterProfileAccess>) -> Result<(String, String), String> {
        let problem = |problem: Problem| format!("{}: {}", problem.reason, problem.message);
        let access = access("p", &profile(status), configured).map_err(problem)?;
        let cluster = access.kubeconfig.clusters[0].cluster.clone().unwrap();
        Ok((access.profile.unwrap().program.command, cluster.server.unwrap()))
    }

    fn at(name: &str, server: &str) -> Value {
        json!({ "name": name, "cluster": { "server": server } })
    }

    #[test]
    fn the_first_provider_of_the_configuration_that_the_profile_has_is_used() {
        let both = json!({ "accessProviders": [at("b", "https://b"), at("a", "https://a")] });
        let former = json!({ "credentialProviders": [at("a", "https://former")] });
        let of_both = json!({ "accessProviders": [at("a", "https://a")],
            "credentialProviders": [at("a", "https://former"), at("b", "https://b")] });
        let none = "BadClusterProfile: no matching cluster accessor found for cluster profile \"p\"";
        let unconfigured = "BadClusterProfile: no access provider configured";
        let a = |server: &str| Ok(("/bin/a", server.to_owned()));
        let table = [
            (&both, Some(configured("accessProviders", &["x", "a", "b"])), a("https://a")),
            (&both, Some(configured("credentialsProviders", &["a"])), a("https://a")),
            (&former, Some(configured("accessProviders", &["a"])), a("https://former")),
            (&of_both, Some(configured("accessProviders", &["a"])), a("https://a")),
            (&both, Some(configured("accessProviders", &["x"])), Err(none)),
            (&both, Some(configured("accessProviders", &[])), Err(none)),
            (&json!({}), Some(configured("accessProviders", &["a"])), Err(none)),
            (&both, None, Err(unconfigured)),
        ];
        for (status, configured, expected) in table {
            let expected = expected.map(|(command, server)| (command.to_owned(), server));
            assert_eq!(chosen(status, configured.as_ref()), expected.map_err(str::to_owned), "{status}");
        }
    }

    #[test]
    fn a_profile_says_where_a_cluster_is_and_nothing_else() {
        let configured = configured("accessProviders", &["a"]);
        let refused = |why: &str| Err(format!("BadRestConfig: {why}"));
        let untrusted = "untrusted server endpoint";
        let table = [
            (json!({ "server": "https://10.0.0.1:6443" }), Ok(())),
            (json!({ "server": "https://[::1]:6443" }), Ok(())),
            (json!({ "server": "https://Worker.example.com/path" }), Ok(())),
            (json!({}), refused(untrusted)),
            (json!({ "server": "worker:6443" }), refused(untrusted)),
            (json!({ "server": "https://under_score" }), refused(untrusted)),
            (json!({ "server": "https://w", "proxy-url": "http://p" }), Ok(())),
            (json!({ "server": "https://w", "proxy-url": "http://p q" }), refused("proxy-url is not a URL")),
        ];
        for (cluster, expected) in table {
            let status = json!({ "accessProviders": [{ "name": "a", "cluster": cluster }] });
            assert_eq!(chosen(&status, Some(&configured)).map(drop), expected, "{cluster}");
        }

        let all = json!({ "server": "https://w", "certificate-authority-data": "Y2E=", "tls-server-name": "n",
            "proxy-url": "", "insecure-skip-tls-verify": true, "certificate-authority": "/etc/passwd" });
        let status = json!({ "accessProviders": [{ "name": "a", "cluster": all }] });
        let access = access("p", &profile(&status), Some(&configured)).ok().unwrap();
        let kept = serde_json::to_value(access.kubeconfig.clusters[0].cluster.clone()).unwrap();
        let expected =
            json!({ "server": "https://w", "certificate-authority-data": "Y2E=", "tls-server-name": "n" });
        assert_eq!(kept, expected);
    }

    #[test]
    fn what_changes_the_way_to_a_cluster_changes_its_digest() {
        let digest_of = |cluster: Value, configured: &ClusterProfileAccess| {
            let status =
                json!({ "accessProviders": [{ "name": "a", "cluster": cluster }], "properties": [] });
            access("p", &profile(&status), Some(configured)).ok().unwrap().digest
        };
        let own = configured("accessProviders", &["a"]);
        let cluster = json!({ "server": "https://w" });
        let before = digest_of(cluster.clone(), &own);
        assert_eq!(before, digest_of(cluster.clone(), &own));
        assert_ne!(before, digest_of(json!({ "server": "https://v" }), &own));
        for (field, value) in
            [("certificate-authority-data", "Y2E="), ("tls-server-name", "n"), ("proxy-url", "http://p")]
        {
            let mut changed = cluster.clone();
            changed[field] = value.into();
            assert_ne!(before, digest_of(changed, &own), "{field}");
        }
        let mut other = own.clone();
        other.access_providers[0].exec_config.args = vec!["--verbose".to_owned()];
        assert_ne!(before, digest_of(cluster, &other));
    }

    #[test]
    fn a_program_is_told_of_the_cluster_and_of_its_extension() {
        let cluster = json!({ "server": "https://w", "certificate-authority-data": "Y2E=", "extensions": [
            { "name": "other", "extension": 1 },
            { "name": "client.authentication.k8s.io/exec", "extension": { "audience": "a" } }] });
        let cluster = serde_json::from_value(cluster).unwrap();
        let told = told_of(&cluster, extension_of(&cluster));
        let expected = json!({ "server": "https://w", "certificate-authority-data": "Y2E=",
            "config": { "audience": "a" } });
        assert_eq!(told, expected);
    }
}
