//! Names of ProvisioningRequests and of their PodTemplates. As `ProvisioningRequestName` of Kueue.

use quintet_api::names;

/// Room for `-` and five digits in a name of at most 253 characters.
const MAX_PREFIX: usize = 247;
const HASH_LENGTH: usize = 5;
/// How many attempts are looked for behind a shortened name, which does not show its number. With the least backoff of one
/// second, the hundredth is years away from the first.
const MAX_SHORTENED: i32 = 100;

fn limited(name: String) -> String {
    if name.len() <= MAX_PREFIX {
        return name;
    }
    format!("{}-{}", names::head(&name, MAX_PREFIX), names::short_hash(&name, HASH_LENGTH))
}

/// The name of the request of an attempt.
pub(super) fn request(workload: &str, check: &str, attempt: i32) -> String {
    limited(format!("{workload}-{check}-{attempt}"))
}

/// The name of the template of a pod set.
pub(super) fn template(request: &str, pod_set: &str) -> String {
    limited(format!("ppt-{request}-{pod_set}"))
}

/// Which attempt a request is, if it is one of this Workload and check.
pub(super) fn attempt(name: &str, workload: &str, check: &str) -> Option<i32> {
    let rest = name.strip_prefix(workload).and_then(|rest| rest.strip_prefix('-'));
    let rest = rest.and_then(|rest| rest.strip_prefix(check)).and_then(|rest| rest.strip_prefix('-'));
    let number = rest.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(number) = number.and_then(|rest| rest.parse().ok()) {
        return Some(number);
    }
    let is_shortened = name.len() > MAX_PREFIX;
    (1..=MAX_SHORTENED).filter(|_| is_shortened).find(|number| request(workload, check, *number) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_the_attempt() {
        assert_eq!(request("job-a-1", "prov", 2), "job-a-1-prov-2");
        assert_eq!(template("job-a-1-prov-2", "main"), "ppt-job-a-1-prov-2-main");
        let table = [
            ("job-a-1-prov-2", Some(2)),
            ("job-a-1-prov-12", Some(12)),
            ("job-a-1-prov", None),
            ("job-a-1-prov-", None),
            ("job-a-1-prov-1-1", None),
            ("job-a-1-prov-x", None),
            ("job-b-1-prov-2", None),
        ];
        for (name, expected) in table {
            assert_eq!(attempt(name, "job-a-1", "prov"), expected, "{name}");
        }
    }

    #[test]
    fn shortened_names_fit_and_their_attempts_are_found() {
        let workload = "w".repeat(253);
        let names: Vec<String> = (1..=3).map(|number| request(&workload, "prov", number)).collect();
        assert!(names.iter().all(|name| name.len() == 253), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert_eq!(attempt(&names[2], &workload, "prov"), Some(3));
        assert_eq!(attempt(&names[2], &workload, "other"), None);
        assert_eq!(template(&names[0], "main").len(), 253);
    }
}
