//! The program as a user meets it: what it prints, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

fn quintet(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quintet"))
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A mistake: one line on standard error that says `expected`, nothing on standard output, and this code.
fn complains(arguments: &[&str], code: i32, expected: &str) {
    let output = quintet(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.contains(expected), "{arguments:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{message}");
    assert!(output.stdout.is_empty());
}

fn file(name: &str, content: &str) -> String {
    let path = std::env::temp_dir().join(format!("quintet-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

fn kubeconfig(port: u16) -> String {
    file(
        &format!("kubeconfig-{port}"),
        &format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]
users: [{{name: a, user: {{}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"
        ),
    )
}

/// A port of this machine that nobody listens on: it was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_unknown_flag_is_told_with_the_one_that_was_meant() {
    complains(&["operator", "--webhok-port", "1"], 2, "'--webhook-port'; see 'quintet operator --help'");
    complains(&["oprator"], 2, "a similar subcommand exists: 'operator'");
    complains(&["crds", "--output", "xml"], 2, "invalid value 'xml'");
    complains(
        &["operator", "--components", "rey"],
        1,
        "unknown component \"rey\"; choose from ray, queue, codeflare, registry, mlflow",
    );
    complains(&["operator", "--feature-gates", "RayCronJob"], 2, "write it as Gate=true or Gate=false");
}

#[test]
fn a_broken_configuration_file_is_named_with_what_is_wrong() {
    complains(
        &["operator", "--config", "/nonexistent.yaml"],
        1,
        "cannot read the configuration file /nonexistent.yaml",
    );
    let broken = file("broken.yaml", "a: [");
    complains(&["operator", "--config", &broken], 1, "it is not valid YAML");
    let unknown =
        file("unknown.yaml", "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\nlogs: {}\n");
    complains(&["operator", "--config", &unknown], 1, "unknown field `logs`");
}

#[test]
fn a_cluster_that_is_not_there_is_named_with_where_it_was_looked_for() {
    complains(&["operator", "--kubeconfig", "/nonexistent"], 1, "cannot use --kubeconfig /nonexistent");
    let port = free_port();
    let config = kubeconfig(port);
    let expected = format!(
        "cannot reach the Kubernetes API at http://127.0.0.1:{port}/, named by --kubeconfig {config}"
    );
    complains(&["operator", "--kubeconfig", &config], 1, &expected);
    complains(&["crds", "--apply", "--kubeconfig", &config], 1, &expected);
    complains(&["operator", "--kubeconfig", &config, "--context", "b"], 1, "cannot use --kubeconfig");
}

#[test]
fn an_unknown_kind_is_told_where_to_look() {
    complains(&["crds", "raycluster", "foo"], 1, "unknown kind \"foo\"; see 'quintet crds --list'");
}

#[test]
fn crds_are_printed_as_documents_that_can_be_read_again() {
    let output = quintet(&["crds"]);
    assert!(output.status.success());
    let crds: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text(&output.stdout)).unwrap();
    assert_eq!(crds.len(), 22);
    assert!(crds.iter().all(|crd| crd["kind"] == "CustomResourceDefinition"));
    let as_json: serde_json::Value =
        serde_json::from_slice(&quintet(&["crds", "-o", "json"]).stdout).unwrap();
    assert_eq!(as_json["items"], serde_json::Value::Array(crds));
}

#[test]
fn crds_can_be_chosen_by_kind_plural_short_name_or_group() {
    for (names, count) in
        [(&["RayJob"][..], 1), (&["rayjobs", "cq"], 2), (&["kueue.x-k8s.io"], 11), (&["ray.io"], 4)]
    {
        let output = quintet(&[&["crds", "-o", "json"], names].concat());
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{names:?}");
    }
    let list: serde_json::Value =
        serde_json::from_slice(&quintet(&["crds", "--list", "-o", "json", "topo"]).stdout).unwrap();
    let expected = serde_json::json!([{
        "kind": "Topology", "plural": "topologies", "group": "kueue.x-k8s.io", "versions": ["v1beta2", "v1beta1"],
        "scope": "Cluster", "shortNames": ["topo"],
    }]);
    assert_eq!(list, expected);
    let table = text(&quintet(&["crds", "--list", "topo"]).stdout);
    assert!(
        table.starts_with("KIND       GROUP            VERSIONS           SCOPE     SHORT NAMES\nTopology"),
        "{table}"
    );
}

#[test]
fn manifests_hold_all_that_an_installation_needs() {
    let output = quintet(&["manifests", "--namespace", "ml", "--image", "registry.example/quintet:1"]);
    let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text(&output.stdout)).unwrap();
    let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    for kind in [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "Service",
        "Deployment",
    ] {
        assert!(kinds.contains(&kind), "{kind} is missing");
    }
    for object in &objects {
        let namespace = &object["metadata"]["namespace"];
        // What aggregated API servers read of the API server is there.
        let is_reader = object["kind"] == "RoleBinding" && namespace == "kube-system";
        assert!(namespace.is_null() || namespace == "ml" || is_reader, "{object}");
    }
    let converted = objects.iter().find(|object| object["spec"]["conversion"].is_object()).unwrap();
    assert_eq!(converted["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"], "ml");
    complains(&["manifests", "--namespace", "Bad_NS!"], 1, "\"Bad_NS!\" is not a valid namespace name");
    let short = text(&quintet(&["manifests", "--no-crds"]).stdout);
    assert!(!short.contains("kind: CustomResourceDefinition"));
}

#[test]
fn manifests_give_the_rights_that_the_configuration_needs() {
    let objects = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let output = quintet(&[&["manifests", "--no-crds", "--components", "ray"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_saphyr::from_multiple(&text(&output.stdout)).unwrap()
    };
    let roles = |objects: &[serde_json::Value], kind: &str, namespace: Option<&str>| -> String {
        let is_it = |object: &&serde_json::Value| {
            object["kind"] == kind && object["metadata"]["namespace"].as_str() == namespace
        };
        objects.iter().filter(is_it).map(|role| role["rules"].to_string()).collect()
    };
    let plain = roles(&objects(&["--components", "ray"]), "ClusterRole", None);
    assert!(
        plain.contains("rayclusters")
            && !plain.contains("networkpolicies")
            && !plain.contains("route.openshift.io")
    );
    let gated = objects(&["--feature-gates", "RayClusterNetworkPolicy=true", "--openshift"]);
    let rules = roles(&gated, "ClusterRole", None);
    assert!(rules.contains("networkpolicies") && rules.contains("route.openshift.io"), "{rules}");
    let deployment = gated.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let gates = "--feature-gates=RayClusterNetworkPolicy=true";
    assert!(arguments.as_array().unwrap().iter().any(|argument| argument == gates), "{arguments}");

    let file = std::env::temp_dir().join(format!("quintet-manifests-{}.yaml", std::process::id()));
    let configuration = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nbatchScheduler: volcano\n";
    std::fs::write(&file, configuration).unwrap();
    let configured = objects(&["--config", file.to_str().unwrap(), "--watch-namespaces", "a,b"]);
    std::fs::remove_file(&file).unwrap();
    assert!(!roles(&configured, "ClusterRole", None).contains("rayclusters"));
    for namespace in ["a", "b"] {
        let rules = roles(&configured, "Role", Some(namespace));
        assert!(rules.contains("scheduling.volcano.sh"), "{namespace}: {rules}");
    }
    let is_ours = |object: &&serde_json::Value| object["kind"] == "ConfigMap";
    let map = configured.iter().find(is_ours).unwrap();
    assert_eq!(map["data"]["config.yaml"], configuration);
    complains(
        &["manifests", "--feature-gates", "RayCronJobs=true"],
        1,
        "unknown feature gate RayCronJobs; did you mean RayCronJob",
    );
}

/// `kubectl ray version` lists Deployments of all namespaces by
/// `app.kubernetes.io/name in (kuberay-operator,kuberay)` and prints the tag of the first container's image.
#[test]
fn kubectl_ray_finds_the_deployment() {
    let objects = installation(&["--image", "registry.example/quintet:1.2"], &[]);
    let deployment = of_kind(&objects, "Deployment")[0];
    let labels = &deployment["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/name"], "kuberay-operator");
    assert_eq!(labels["app.kubernetes.io/part-of"], "quintet");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/quintet:1.2");
    // The Services select the pods by our own name.
    let template = &deployment["spec"]["template"]["metadata"]["labels"];
    for service in of_kind(&objects, "Service") {
        for (name, value) in service["spec"]["selector"].as_object().unwrap() {
            assert_eq!(template[name], *value, "{service}");
        }
    }
    assert_eq!(template["app.kubernetes.io/component"], "kuberay-operator", "CodeFlare's policies let it in");
}

/// The objects of an installation with these arguments, for an operator with this environment.
fn installation(arguments: &[&str], environment: &[(&str, &str)]) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_quintet"))
        .arg("manifests")
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_saphyr::from_multiple(&text(&output.stdout)).unwrap()
}

fn of_kind<'a>(objects: &'a [serde_json::Value], kind: &str) -> Vec<&'a serde_json::Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
fn manifests_of_one_component_grant_nothing_on_the_crds_of_others() {
    let cluster_role = |components: &str| {
        let objects = installation(&["--components", components], &[]);
        let crds = of_kind(&objects, "CustomResourceDefinition").len();
        (of_kind(&objects, "ClusterRole")[0]["rules"].to_string(), crds)
    };
    let (ray, crds) = cluster_role("ray");
    assert!(!ray.contains("customresourcedefinitions"), "Ray converts nothing: {ray}");
    assert_eq!(crds, 4);
    let (both, _) = cluster_role("ray,queue");
    assert!(both.contains("workloads.kueue.x-k8s.io"), "{both}");
    assert!(!both.contains("modelregistries"), "{both}");
}

#[test]
fn manifests_register_webhooks_and_grant_their_publication() {
    let ray = ["--components", "ray"];
    assert!(of_kind(&installation(&ray, &[]), "ValidatingWebhookConfiguration").is_empty());
    let objects =
        installation(&[&ray[..], &["--watch-namespaces", "a"]].concat(), &[("ENABLE_WEBHOOKS", "true")]);
    let configurations = of_kind(&objects, "ValidatingWebhookConfiguration");
    let configuration = configurations[0];
    assert_eq!(configuration["metadata"]["name"], "validating-webhook-configuration");
    let names: Vec<_> =
        configuration["webhooks"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["vraycluster.kb.io", "vrayjob.kb.io", "vrayservice.kb.io"]);
    let webhook = &configuration["webhooks"][0];
    assert_eq!(webhook["clientConfig"]["service"]["name"], "quintet-webhook");
    assert_eq!(webhook["namespaceSelector"]["matchExpressions"][0]["values"][0], "a");
    let rules = of_kind(&objects, "ClusterRole")[0]["rules"].to_string();
    assert!(rules.contains("\"validatingwebhookconfigurations\""), "{rules}");
    let container = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], serde_json::json!([{ "name": "ENABLE_WEBHOOKS", "value": "true" }]));
}

#[test]
fn manifests_register_aggregated_apis_and_grant_their_delegation() {
    let objects = installation(&["--components", "queue", "-n", "ml"], &[]);
    let services = of_kind(&objects, "APIService");
    assert_eq!(services.len(), 2);
    let spec = &services[0]["spec"];
    assert_eq!(spec["group"], "visibility.kueue.x-k8s.io");
    let expected = serde_json::json!({ "namespace": "ml", "name": "kueue-visibility-server", "port": 443 });
    assert_eq!(spec["service"], expected);
    assert!(spec["insecureSkipTLSVerify"].is_null());
    let names: Vec<_> =
        of_kind(&objects, "Service").iter().map(|one| one["metadata"]["name"].clone()).collect();
    assert!(names.contains(&"kueue-visibility-server".into()), "{names:?}");
    let bound = |kind: &str| -> Vec<serde_json::Value> {
        of_kind(&objects, kind).iter().map(|binding| binding["roleRef"]["name"].clone()).collect()
    };
    assert!(bound("ClusterRoleBinding").contains(&"system:auth-delegator".into()));
    assert!(bound("RoleBinding").contains(&"extension-apiserver-authentication-reader".into()));
    let rules = of_kind(&objects, "ClusterRole")[0]["rules"].to_string();
    assert!(rules.contains("v1beta2.visibility.kueue.x-k8s.io"), "the CA is published: {rules}");

    let without =
        installation(&["--components", "queue", "--feature-gates", "VisibilityOnDemand=false"], &[]);
    assert!(of_kind(&without, "APIService").is_empty());
    assert!(!serde_json::json!(without).to_string().contains("auth-delegator"));
}

#[test]
fn mistakes_in_queue_commands_say_what_to_do() {
    complains(&["queue", "pending", "-o", "xml"], 2, "invalid value 'xml'");
    complains(&["queue", "pending", "--horizon", "soon"], 2, "write it as 30s, 90m, 12h or 7d");
    complains(&["queue", "pending", "--horizon", "900d"], 1, "give a shorter --horizon");
    complains(&["queue", "what-if"], 1, "there is nothing to try out; give -f FILE, --finish or --priority");
    let job = file("job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n");
    complains(&["queue", "what-if", "-f", &job], 1, "a \"Job\" cannot be tried out; give ClusterQueues");
    complains(&["queue", "what-if", "-f", "/nonexistent.yaml"], 1, "cannot read /nonexistent.yaml");
    complains(&["queue", "what-if", "--priority", "a"], 2, "write it as NAME=1000");
    let quota = ["queue", "create", "cq", "a", "--nominal-quota", "cpu=1"];
    complains(&quota, 2, "write it as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT");
    let limit = ["queue", "create", "cq", "a", "--borrowing-limit", "b:cpu=1", "--dry-run", "client"];
    complains(&limit, 1, "--borrowing-limit: flavor b has no --nominal-quota");
    complains(&["queue", "create", "lq", "a"], 2, "--clusterqueue");
    complains(&["queue", "list", "wl", "--for", "train"], 2, "write it as TYPE/NAME, such as job/train");
    complains(&["queue", "import", "-n", "a"], 2, "--queuemapping-file");
    let rules = file("rules.yaml", "- match: {labels: {a: b}}\n");
    let import = ["queue", "import", "-n", "a", "--queuemapping-file", &rules];
    complains(&import, 1, "rule 1 has neither toLocalQueue nor skip");
    let port = free_port();
    let config = kubeconfig(port);
    complains(&["queue", "pending", "--kubeconfig", &config], 1, "cannot reach the Kubernetes API");
}

#[test]
fn queues_can_be_written_without_a_cluster() {
    let arguments = [
        "queue",
        "create",
        "cq",
        "research",
        "--cohort",
        "company",
        "--nominal-quota",
        "a100:gpu=8,t4:gpu=16",
        "--borrowing-limit",
        "a100:gpu=4",
        "--reclaim-within-cohort",
        "Any",
        "--dry-run",
        "client",
        "-o",
        "json",
    ];
    let output = quintet(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let queue: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(queue["apiVersion"], "kueue.x-k8s.io/v1beta2");
    let spec = &queue["spec"];
    assert_eq!(
        (&spec["cohortName"], &spec["namespaceSelector"]),
        (&"company".into(), &serde_json::json!({}))
    );
    assert_eq!(spec["preemption"], serde_json::json!({ "reclaimWithinCohort": "Any" }));
    assert_eq!(spec["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"], "4");
    let said = text(
        &quintet(&["queue", "create", "rf", "t4", "--node-labels", "gpu=t4", "--dry-run", "client"]).stdout,
    );
    assert_eq!(said, "resourceflavor.kueue.x-k8s.io/t4 created (dry run)\n");
}

#[test]
fn webhooks_do_not_wait_for_themselves() {
    let queued = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  integrations: {frameworks: [deployment]}\n";
    let objects =
        installation(&["--namespace", "platform", "--config", &file("deployments.yaml", queued)], &[]);
    let configurations = of_kind(&objects, "MutatingWebhookConfiguration");
    let webhooks = configurations.iter().flat_map(|one| one["webhooks"].as_array().unwrap());
    let on_deployments = webhooks.filter(|one| one["rules"].to_string().contains("\"deployments\""));
    let excluded: Vec<_> = on_deployments
        .map(|one| one["namespaceSelector"]["matchExpressions"][0]["values"].to_string())
        .collect();
    assert_eq!(excluded, ["[\"kube-system\",\"platform\"]"]);
}

#[test]
fn components_are_listed_with_what_they_replace() {
    let table = text(&quintet(&["components"]).stdout);
    let line = table.lines().find(|line| line.starts_with("ray ")).unwrap();
    assert!(
        line.contains("KubeRay") && line.contains("RayCluster, RayJob, RayService, RayCronJob"),
        "{table}"
    );
    let list: serde_json::Value =
        serde_json::from_slice(&quintet(&["components", "-o", "json"]).stdout).unwrap();
    assert!(list[0]["featureGates"].as_array().unwrap().contains(&"RayCronJob".into()), "{list}");
    for component in list.as_array().unwrap() {
        let (name, is_able) = (component["name"].as_str().unwrap(), component["hasControllers"] == true);
        let line = table.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert_eq!(line.contains("not yet"), !is_able, "components without controllers say so: {line}");
        if !is_able {
            let expected = format!("nothing would run: there are no controllers yet for {name};");
            complains(&["manifests", "--components", name], 1, &expected);
            complains(&["operator", "--components", name], 1, &expected);
        }
    }
}

#[test]
fn manifests_fit_the_process_that_is_configured() {
    let run = |name: &str, settings: &str, arguments: &[&str]| -> Vec<serde_json::Value> {
        let own = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\n";
        let file = file(name, &format!("{own}{settings}\n"));
        let output = quintet(&[&["manifests", "--no-crds", "--config", &file], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_saphyr::from_multiple(&text(&output.stdout)).unwrap()
    };
    let find = |objects: &[serde_json::Value], kind: &str, name: &str| {
        let is_it =
            |object: &&serde_json::Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(is_it).cloned()
    };
    let deployment = |objects: &[serde_json::Value]| find(objects, "Deployment", "quintet").unwrap();

    let plain = run("plain.yaml", "concurrency: 3", &[]);
    assert!(find(&plain, "ClusterRole", "quintet").is_some());
    assert!(find(&plain, "Role", "quintet").unwrap()["rules"].to_string().contains("leases"));
    assert!(find(&plain, "Service", "quintet-metrics").is_some());
    assert_eq!(deployment(&plain)["spec"]["replicas"], 2);
    assert!(deployment(&plain)["spec"]["strategy"].is_null());
    let pod = |objects: &[serde_json::Value]| deployment(objects)["spec"]["template"].clone();
    let hash = |objects: &[serde_json::Value]| {
        pod(objects)["metadata"]["annotations"]["quintet.dev/configuration-hash"].clone()
    };
    assert_eq!(hash(&plain).as_str().unwrap().len(), 40);
    assert_eq!(hash(&plain), hash(&run("same.yaml", "concurrency: 3", &[])));
    assert_ne!(hash(&plain), hash(&run("other.yaml", "concurrency: 4", &[])), "other pods for another file");

    let elsewhere = "leaderElection: {resourceNamespace: leases}\nnamespace: ml\nwatchNamespaces: [a]";
    let elsewhere = run("elsewhere.yaml", elsewhere, &["-n", "ml"]);
    let lease = find(&elsewhere, "Role", "quintet-leader-ml").unwrap();
    assert_eq!(lease["metadata"]["namespace"], "leases");
    assert!(lease["rules"].to_string().contains("quintet-leader"));
    let binding = find(&elsewhere, "RoleBinding", "quintet-leader-ml").unwrap();
    assert_eq!(binding["subjects"][0]["namespace"], "ml");
    assert!(!find(&elsewhere, "Role", "quintet").unwrap()["rules"].to_string().contains("leases"));
    let everywhere = find(&elsewhere, "ClusterRoleBinding", "quintet-ml").unwrap();
    assert_eq!(everywhere["roleRef"]["name"], "quintet-ml");
    assert!(find(&elsewhere, "ClusterRole", "quintet-ml").is_some());
    assert!(find(&elsewhere, "Role", "quintet-operator-ml").is_some());

    let off = "leaderElection: {leaderElect: false}\nmetricsBindAddress: '0'\nhealthBindAddress: ''";
    let off = run("off.yaml", off, &[]);
    let spec = &deployment(&off)["spec"];
    assert_eq!((&spec["replicas"], &spec["strategy"]["type"]), (&1.into(), &"Recreate".into()));
    let container = &spec["template"]["spec"]["containers"][0];
    let ports: Vec<_> = container["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(ports, ["webhook", "visibility"], "neither metrics nor health: {container}");
    assert!(container["livenessProbe"].is_null() && container["readinessProbe"].is_null());
    assert!(find(&off, "Service", "quintet-metrics").is_none());
    assert!(!off.iter().any(|object| object["rules"].to_string().contains("leases")));
}

#[test]
fn manifests_that_would_not_work_are_refused() {
    let own = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\n";
    for (name, settings, arguments, expected) in [
        (
            "ns.yaml",
            "namespace: ml",
            &["-n", "other"][..],
            "says namespace: ml, and this would install into other",
        ),
        ("one.yaml", "leaderElection: {leaderElect: false}", &["--replicas", "2"], "can be only one replica"),
        ("port.yaml", "metricsBindAddress: ':0'", &[], "is another port at every start"),
        (
            "bare.yaml",
            "healthBindAddress: '8081'",
            &[],
            "healthBindAddress (--health-probe-bind-address) \"8081\" has no port",
        ),
        ("names.yaml", "watchNamespaces: [Team_A]", &[], "\"Team_A\" is not a valid namespace name"),
    ] {
        let file = file(name, &format!("{own}{settings}\n"));
        complains(&[&["manifests", "--config", &file], arguments].concat(), 1, expected);
    }
    complains(&["manifests", "--watch-namespaces", "a,b c"], 1, "\"b c\" is not a valid namespace name");
    assert!(quintet(&["manifests", "--watch-namespaces", "a,"]).status.success(), "a comma too many");
}

#[test]
fn help_teaches_and_has_no_colours_in_a_pipe() {
    for arguments in [&["--help"][..], &["operator", "--help"], &["crds", "--help"]] {
        let output = quintet(arguments);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("Usage: quintet") && !help.contains('\u{1b}'), "{help}");
        assert!(help.lines().filter(|line| !line.is_empty()).count() > 10, "it teaches: {help}");
    }
    // Flags stand below what they are about, and no default is shown that is nothing.
    let up = text(&quintet(&["up", "--help"]).stdout);
    let (node, operators) =
        (up.split("\nNode:\n").nth(1).unwrap(), up.split("\nOperators:\n").nth(1).unwrap());
    let operators = operators.split("\nLog:\n").next().unwrap();
    assert!(node.contains("--pretend-gpus") && operators.contains("--components"), "{up}");
    assert!(operators.contains("--no-operator") && !operators.contains("--log-level"), "{up}");
    assert!(!text(&quintet(&["history-server", "--help"]).stdout).contains("[default: \"\"]"));
    assert_eq!(quintet(&[]).status.code(), Some(2), "no command is a mistake");
}

#[test]
fn version_and_completions_are_there() {
    let commit = env!("QUINTET_COMMIT");
    assert!(commit == "unknown" || commit.len() >= 7, "{commit}");
    let line = text(&quintet(&["version"]).stdout);
    assert!(line.starts_with("quintet 0.") && line.contains(&format!("(commit {commit}, ")), "{line}");
    let line = text(&quintet(&["--version"]).stdout);
    assert_eq!(line, format!("quintet {} (commit {commit})\n", env!("CARGO_PKG_VERSION")));
    let version: serde_json::Value =
        serde_json::from_slice(&quintet(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        (&version["version"], &version["commit"]),
        (&env!("CARGO_PKG_VERSION").into(), &commit.into())
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&quintet(&["completion", shell]).stdout).contains("quintet"), "{shell}");
    }
}

#[test]
fn a_simulation_is_told_in_tables_and_a_plot_or_in_json() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate/two-teams.yaml");
    let report = text(&quintet(&["simulate", example]).stdout);
    assert!(
        report.contains("of the CPU quota of all queues") && report.contains("\nproduction "),
        "{report}"
    );
    let report: serde_json::Value =
        serde_json::from_slice(&quintet(&["simulate", "-o", "json", example]).stdout).unwrap();
    assert!(report["classes"]["long"]["admitted"].as_u64() >= Some(20), "{report}");
    complains(&["simulate", "/nonexistent.yaml"], 1, "cannot read /nonexistent.yaml");
    complains(&["simulate", &file("plan.yaml", "cohorts: 3")], 1, "the plan cannot be read");
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is() {
    let run = |rest: &str| {
        let command = format!("{} crds {rest}", env!("CARGO_BIN_EXE_quintet"));
        Command::new("bash").args(["-o", "pipefail", "-c", &command]).output().unwrap()
    };
    let output = run("| head -c 1");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let output = run("> /dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: cannot write the output: "), "{}", text(&output.stderr));
}
