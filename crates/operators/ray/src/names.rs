//! Names of the objects made for Ray clusters, shortened as by KubeRay's `utils.CheckName`: running clusters are
//! found by these names.

use quintet_api::names::{head, tail};

pub use quintet_api::names::suffix;

/// A RayCluster's name leaves room for what is appended to it.
pub const MAX_CLUSTER_NAME: usize = 53;
/// A RayJob's or RayService's name, to which `-` and five characters are added for its cluster.
pub const MAX_WORKLOAD_NAME: usize = MAX_CLUSTER_NAME - 6;
/// A RayCronJob's name, to which `-` and the minute of a tick are added for its RayJob.
pub const MAX_CRON_JOB_NAME: usize = MAX_WORKLOAD_NAME - 11;

/// Longest name of most objects made for a cluster.
const MAX_OBJECT_NAME: usize = 50;

/// The last 50 characters, made to begin with a letter. Upstream's `CheckName`.
pub fn object_name(name: &str) -> String {
    let short = tail(name, MAX_OBJECT_NAME);
    replace_first(short, |first| first.is_ascii_digit() || first.is_ascii_punctuation())
}

/// The last 63 characters, made not to begin with punctuation. Upstream's `CheckLabel`.
pub fn label_value(value: &str) -> String {
    replace_first(tail(value, quintet_api::names::MAX_LABEL), |first| first.is_ascii_punctuation())
}

fn replace_first(text: &str, unfit: impl Fn(char) -> bool) -> String {
    match text.chars().next() {
        Some(first) if unfit(first) => format!("r{}", text.get(first.len_utf8()..).unwrap_or_default()),
        _ => text.to_owned(),
    }
}

/// What the names of a group's pods begin with: `<prefix>-head-` or `<prefix>-worker-`.
pub fn pod_prefix(prefix: &str, node_type: &str) -> String {
    format!("{}-{node_type}-", head(prefix, MAX_OBJECT_NAME)).to_lowercase()
}

/// The head Service of a cluster, a RayJob or a RayService.
pub fn head_service(owner: &str) -> String {
    format!("{owner}-head-svc")
}

/// The Serve Service of a cluster or a RayService.
pub fn serve_service(owner: &str) -> String {
    format!("{owner}-serve-svc")
}

/// The Service by which the hosts of multi-host workers find each other.
pub fn headless_service(cluster: &str) -> String {
    format!("{cluster}-headless")
}

/// `<name>-head`, `<name>-worker`: the value of `ray.io/identifier`.
pub fn identifier(owner: &str, node_type: &str) -> String {
    label_value(&format!("{owner}-{node_type}"))
}

/// The Job that clears Redis after a cluster.
pub fn redis_cleanup_job(cluster: &str) -> String {
    label_value(&format!("{cluster}-redis-cleanup"))
}

/// Where a Service is found from anywhere in the cluster.
pub fn service_host(service: &str, namespace: &str, domain: &str) -> String {
    format!("{service}.{namespace}.svc.{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end_and_begin_with_a_letter() {
        let long = "a".repeat(10) + &"b".repeat(50);
        assert_eq!(object_name(&long), "b".repeat(50));
        assert_eq!(object_name("1abc"), "rabc");
        assert_eq!(object_name("-abc"), "rabc");
        assert_eq!(object_name("abc"), "abc");
        assert_eq!(label_value("1abc"), "1abc", "a label may begin with a digit");
        assert_eq!(label_value(".abc"), "rabc");
    }

    #[test]
    fn pods_keep_the_beginning_of_the_name() {
        let cluster = "c".repeat(53);
        assert_eq!(pod_prefix(&cluster, "head"), format!("{}-head-", "c".repeat(50)));
        assert_eq!(pod_prefix("A-small", "worker"), "a-small-worker-");
    }
}
