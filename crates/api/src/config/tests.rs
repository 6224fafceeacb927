use super::codeflare::CodeFlareConfiguration;
use super::kueue::{
    AdmissionFairSharing, PreemptionStrategy, QueueConfiguration, QuotaCheckStrategy, RequeuingTimestamp,
    WaitForPodsReady,
};
use super::ray::RayConfiguration;
use super::*;
use crate::duration::GoDuration;

const SCHEMA: Schema<'static> =
    Schema(&[ray::CONFIG, kueue::CONFIG, codeflare::CONFIG, ComponentConfig::without_settings("mlflow")]);

fn read(text: &str) -> Configuration {
    SCHEMA.read(text).unwrap()
}

fn error(text: &str) -> String {
    SCHEMA.read(text).unwrap_err().to_string()
}

fn ray(configuration: &Configuration) -> RayConfiguration {
    configuration.section("ray").unwrap()
}

fn queue(configuration: &Configuration) -> QueueConfiguration {
    configuration.section("queue").unwrap()
}

fn codeflare(configuration: &Configuration) -> CodeFlareConfiguration {
    configuration.section("codeflare").unwrap()
}

#[test]
fn nothing_means_the_defaults() {
    for text in ["", "---\n", "# only a comment\n"] {
        assert_eq!(read(text), Configuration::default(), "{text:?}");
    }
    assert!(read("").enables("ray") && read("").enables("mlflow"));
    assert_eq!(queue(&read("")), QueueConfiguration::default());
}

#[test]
fn own_format() {
    let configuration = read(
        "apiVersion: config.quintet.dev/v1alpha1
kind: Configuration
components: [ray, mlflow]
metricsBindAddress: 127.0.0.1:9000
leaderElection: {leaderElect: false, leaseDuration: 1m}
webhook: {port: 10250, certDir: /certs}
log: {level: debug, format: json}
featureGates: {RayCronJob: true}
ray: {batchScheduler: volcano}
queue: {manageJobsWithoutQueueName: true}
codeflare: {appwrapper: {enabled: true}}
",
    );
    let enabled = ["ray", "queue", "codeflare", "mlflow"].map(|name| configuration.enables(name));
    assert_eq!(enabled, [true, false, false, true]);
    assert_eq!(configuration.process.metrics_bind_address.as_deref(), Some("127.0.0.1:9000"));
    assert!(!configuration.process.leader_election.leader_elect);
    assert_eq!(configuration.process.leader_election.lease_duration, GoDuration::from_secs(60));
    assert_eq!(configuration.process.webhook.cert_dir.as_deref(), Some("/certs"));
    assert_eq!(ray(&configuration).batch_scheduler.as_deref(), Some("volcano"));
    assert!(queue(&configuration).manage_jobs_without_queue_name);
    assert!(codeflare(&configuration).appwrapper.unwrap().enabled);
}

#[test]
fn what_is_written_can_be_read() {
    let mut written = serde_json::to_value(Configuration::default()).unwrap();
    written["apiVersion"] = API_VERSION.into();
    written["kind"] = KIND.into();
    assert_eq!(read(&written.to_string()), Configuration::default());
}

#[test]
fn kuberay_format_sets_up_ray_and_the_process() {
    let configuration = read(
        "apiVersion: config.ray.io/v1alpha1
kind: Configuration
metricsAddr: ':9999'
probeAddr: ':9998'
enableLeaderElection: false
watchNamespace: a, b
reconcileConcurrency: 3
qps: 7
unknownToUs: true
defaultPodLabels: {team: ml}
headSidecarContainers: [{name: logs, image: fluent-bit}]
",
    );
    assert_eq!(configuration.process.metrics_bind_address.as_deref(), Some(":9999"));
    assert_eq!(configuration.process.health_bind_address.as_deref(), Some(":9998"));
    assert!(!configuration.process.leader_election.leader_elect);
    assert_eq!(configuration.process.watch_namespaces, ["a", "b"]);
    assert_eq!(configuration.process.client.qps, Some(7));
    assert_eq!(configuration.process.concurrency, 3);
    assert_eq!(ray(&configuration).default_pod_labels["team"], "ml");
    assert_eq!(ray(&configuration).head_sidecar_containers[0].name, "logs");
}

#[test]
fn kueue_format_sets_up_the_queue_and_the_process() {
    let configuration = read(
        "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: ':8181'}
metrics: {bindAddress: ':8443', enableClusterQueueResources: true}
webhook: {port: 9444}
internalCertManagement: {enable: false}
clientConnection: {qps: 50, burst: 100}
featureGates: {PartialAdmission: false}
waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}
resources:
  transformations:
  - {input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/accelerator-memory: 5Gi}}
",
    );
    assert_eq!(configuration.process.namespace.as_deref(), Some("kueue-system"));
    assert_eq!(configuration.process.health_bind_address.as_deref(), Some(":8181"));
    assert_eq!(configuration.process.metrics_bind_address.as_deref(), Some(":8443"));
    assert_eq!(configuration.process.webhook.port, 9444);
    assert_eq!(
        configuration.process.webhook.cert_dir.as_deref(),
        Some("/tmp/k8s-webhook-server/serving-certs"),
        "another program provides certificates"
    );
    assert_eq!(configuration.process.client.qps, Some(50));
    assert!(!configuration.feature_gates["PartialAdmission"]);
    let waiting = queue(&configuration).wait_for_pods_ready.unwrap();
    assert_eq!(waiting.timeout, GoDuration::from_secs(1800));
    assert_eq!(waiting.requeuing_strategy.timestamp, RequeuingTimestamp::Creation);
    let output = queue(&configuration).resources.transformations[0].outputs["example.com/accelerator-memory"];
    assert_eq!(output.to_string(), "5Gi");
}

#[test]
fn the_two_kueue_versions_differ_in_their_defaults() {
    let old = |rest: &str| {
        queue(&read(&format!("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n{rest}")))
    };
    let new = |rest: &str| {
        queue(&read(&format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{rest}")))
    };
    assert!(old("").wait_for_pods_ready.is_none());
    assert!(new("").wait_for_pods_ready.is_some());
    let waiting = old("waitForPodsReady: {enable: true}").wait_for_pods_ready.unwrap();
    assert_eq!((waiting.timeout, waiting.block_admission), (GoDuration::from_secs(300), true));
    assert!(old("fairSharing: {}").fair_sharing.is_none());
    let both = [PreemptionStrategy::LessThanOrEqualToFinalShare, PreemptionStrategy::LessThanInitialShare];
    assert_eq!(old("fairSharing: {enable: true}").fair_sharing.unwrap().preemption_strategies, both);
    assert_eq!(old("integrations: {podOptions: {}, frameworks: [pod]}").integrations.frameworks, ["pod"]);
    assert_eq!(
        old("queueVisibility: {}").resources.quota_check_strategy,
        QuotaCheckStrategy::BlockUndeclared
    );
}

#[test]
fn codeflare_format_has_no_type() {
    let configuration = read(
        "clientConnection: {qps: 50, burst: 100}
metrics: {bindAddress: ':8080'}
health: {bindAddress: ':8081'}
kuberay: {rayDashboardOAuthEnabled: false, ingressDomain: kind}
appwrapper: {enabled: true, Config: {faultTolerance: {retryLimit: 1, resetPause: 1000000000}}}
",
    );
    let kuberay = codeflare(&configuration).kuberay.unwrap();
    assert!(!kuberay.ray_dashboard_oauth_enabled && kuberay.mtls_enabled);
    let fault_tolerance = codeflare(&configuration).appwrapper.unwrap().config.fault_tolerance;
    assert_eq!((fault_tolerance.retry_limit, fault_tolerance.reset_pause.0.as_secs()), (1, 1));
    assert_eq!(fault_tolerance.warmup_grace_period.0.as_secs(), 300);
}

#[test]
fn appwrapper_alone_has_a_document_of_its_own() {
    let configuration = read(
        "appwrapper: {userRBACAdmissionCheck: false, faultTolerance: {retryLimit: 99}}
controllerManager: {metrics: {bindAddress: ':8443'}, leaderElection: true}
webhooksEnabled: true
",
    );
    assert_eq!(codeflare(&configuration).kuberay, None, "Ray clusters are left alone");
    let appwrapper = codeflare(&configuration).appwrapper.unwrap();
    assert!(appwrapper.enabled && !appwrapper.config.user_rbac_admission_check);
    assert_eq!(appwrapper.config.fault_tolerance.retry_limit, 99);
    assert_eq!(configuration.process.metrics_bind_address.as_deref(), Some(":8443"));
}

#[test]
fn keys_of_codeflares_documents_are_read_in_any_case() {
    let configuration =
        read("KubeRay: {INGRESSDOMAIN: kind}\nAppWrapper: {Enabled: true, config: {SchedulerName: x}}");
    let CodeFlareConfiguration { kuberay, appwrapper } = codeflare(&configuration);
    assert_eq!(kuberay.unwrap().ingress_domain, "kind");
    assert_eq!(appwrapper.unwrap().config.scheduler_name, "x");
    let alone = codeflare(&read("webhooksEnabled: false\nnonsense: 1\nAppWrapper: {SchedulerName: other}"));
    let appwrapper = alone.appwrapper.unwrap();
    assert!(appwrapper.enabled && !appwrapper.webhooks_enabled);
    assert_eq!(appwrapper.config.scheduler_name, "other");
}

#[test]
fn what_a_document_leaves_out_has_the_default() {
    let config = |document: &str| codeflare(&read(document)).appwrapper.unwrap().config;
    let config_of =
        |autopilot: &str| config(&format!("appwrapper: {{autopilot: {{{autopilot}}}}}")).autopilot;
    let taints = |autopilot: &str| config_of(autopilot).resource_taints.into_keys().collect::<Vec<_>>();
    assert_eq!(taints("monitorNodes: false"), ["nvidia.com/gpu"]);
    assert_eq!(taints("resourceTaints: {a.com/b: []}"), ["a.com/b", "nvidia.com/gpu"]);
    assert_eq!(config_of("resourceTaints: {nvidia.com/gpu: []}").resource_taints["nvidia.com/gpu"], []);
    assert_eq!(config("appwrapper: \nwebhooksEnabled: true").fault_tolerance.retry_limit, 3);
    let kuberay = codeflare(&read("kuberay: {ingressDomain: , mTLSEnabled: }")).kuberay.unwrap();
    assert!(kuberay.mtls_enabled && kuberay.ingress_domain.is_empty());
}

#[test]
fn periods_of_appwrappers_go_together() {
    let rejected = |fault_tolerance: &str| {
        SCHEMA
            .read(&format!("appwrapper: {{faultTolerance: {{{fault_tolerance}}}}}"))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        rejected("admissionGracePeriod: 600000000000"),
        "AdmissionGracePeriod 10m0s exceeds WarmupGracePeriod 5m0s"
    );
    assert_eq!(rejected("resetPause: 48h"), "ResetPause 48h0m0s exceeds GracePeriodCeiling 24h0m0s");
    assert_eq!(rejected("successTTLCeiling: 0"), "SuccessTTLCeiling must be greater than 0");
}

#[test]
fn what_go_reads_is_read() {
    let kueue = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    read(&format!(
        "{kueue}resources:\nintegrations:\n  frameworks:\nleaderElection: {{resourceLock: leases}}\n"
    ));
    assert_eq!(read(&format!("{kueue}clientConnection: {{qps: 49.5}}")).process.client.qps, Some(50));
    assert_eq!(read(&format!("{kueue}clientConnection: {{qps: -1}}")).process.client.qps, None);
    let ray = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n";
    assert_eq!(read(&format!("{ray}qps: 100.0")).process.client.qps, Some(100));
    let codeflare =
        read("kubeRay: {}\nleaderElection: {leaderElect: true, unknown: 1, resourceLock: leases}\n");
    assert!(codeflare.process.leader_election.leader_elect);
}

#[test]
fn what_is_empty_in_the_format_of_kueue_has_its_default() {
    let kueue = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let settings = queue(&read(&format!(
        "{kueue}integrations: {{frameworks: []}}
waitForPodsReady: {{timeout: 0s}}
multiKueue: {{origin: ''}}
admissionFairSharing: {{usageSamplingInterval: 0s}}
tls: {{minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}}
"
    )));
    assert_eq!(settings.integrations.frameworks, ["batch/job"]);
    assert_eq!(settings.wait_for_pods_ready, Some(WaitForPodsReady::default()));
    assert_eq!(settings.multi_kueue.origin, "multikueue");
    assert_eq!(settings.admission_fair_sharing, Some(AdmissionFairSharing::default()));
}

#[test]
fn access_providers_are_read_under_both_names_without_showing_secrets() {
    let kueue = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    for list in ["accessProviders", "credentialsProviders"] {
        let settings = queue(&read(&format!(
            "{kueue}multiKueue:
  clusterProfile:
    {list}:
    - name: a
      execConfig:
        apiVersion: client.authentication.k8s.io/v1
        command: /bin/a
        args:
        env: [{{name: KEY, value: hunter2}}]
        installHint: install it
        interactiveMode: Never
        provideClusterInfo: true
"
        )));
        let access = settings.multi_kueue.cluster_profile.unwrap();
        let exec = &access.providers()[0].exec_config;
        assert_eq!((exec.command.as_str(), exec.env[0].value.as_str()), ("/bin/a", "hunter2"));
        assert!(exec.args.is_empty() && exec.provide_cluster_info);
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}

#[test]
fn several_documents_each_set_up_their_part() {
    let configuration = read(
        "apiVersion: config.ray.io/v1alpha1
kind: Configuration
batchScheduler: yunikorn
---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
manageJobsWithoutQueueName: true
",
    );
    assert_eq!(ray(&configuration).batch_scheduler.as_deref(), Some("yunikorn"));
    assert!(queue(&configuration).manage_jobs_without_queue_name);
}

#[test]
fn a_broken_file_says_what_is_wrong_in_one_line() {
    let own = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\n";
    let kueue = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    for (text, expected) in [
        ("a: [", "it is not valid YAML: line 1 column 4: "),
        ("kind: Pod\napiVersion: v1", "document 1 is a Pod of v1, which is not a known configuration format"),
        ("hello: world", "document without apiVersion and kind"),
        (
            &format!("{own}components: [rey]"),
            "unknown component \"rey\"; choose from ray, queue, codeflare, mlflow",
        ),
        (&format!("{own}webhook: {{prt: 1}}"), "unknown field `prt`"),
        (&format!("{own}metricsAdress: :1"), "unknown field `metricsAdress`"),
        (&format!("{own}leaderElection: {{leaseDuration: soon}}"), "\"soon\" is not a duration"),
        (
            &format!(
                "{kueue}multiKueue: {{clusterProfile: {{accessProviders: [{{execConfig: {{cmd: a}}}}]}}}}"
            ),
            "unknown field `cmd`",
        ),
        (
            &format!("{kueue}fairSharring: {{}}"),
            "document 1 (Kueue): fairSharring: unknown field `fairSharring`",
        ),
        (&format!("{kueue}fairSharing: {{}}"), "fairSharing.preemptionStrategies: name LessThan"),
        (&format!("{kueue}waitForPodsReady: {{timeout: 5}}"), "waitForPodsReady.timeout: invalid type"),
        (
            &format!(
                "{kueue}resources: {{quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a]}}"
            ),
            "resources.quotaCheckStrategy: leave out excludeResourcePrefixes",
        ),
        (&format!("{kueue}queueVisibility: {{}}"), "queueVisibility: unknown field"),
        (
            &format!("{kueue}multiKueue: {{gcInterval: -1s}}"),
            "multiKueue.gcInterval: \"-1s\" is not a duration",
        ),
        (
            &format!("{kueue}objectRetentionPolicies: {{workloads: {{afterFinished: -1s}}}}"),
            "objectRetentionPolicies.workloads.afterFinished: ",
        ),
        (
            &format!("{kueue}resources: {{transformations: [{{input: a}}, {{input: b, strategy: Foo}}]}}"),
            "resources.transformations[1].strategy: unknown variant",
        ),
        (
            &format!("{kueue}fairSharing: {{preemptionStrategies: [Foo]}}"),
            "fairSharing.preemptionStrategies[0]: ",
        ),
        (&format!("{kueue}tls: {{minVersion: TLS9}}"), "tls.minVersion: unknown version"),
        (&format!("{kueue}controller: {{foo: 1}}"), "controller.foo: unknown field `foo`"),
        (
            &format!("{kueue}controller: {{cacheSyncTimeout: 2m}}"),
            "controller.cacheSyncTimeout: invalid type",
        ),
        (&format!("{kueue}tls: {{minVersion: VersionTLS11}}"), "tls.minVersion: unknown version"),
        (
            &format!("{kueue}tls: {{cipherSuites: [TLS_RSA_WITH_RC4_128_SHA]}}"),
            "tls.cipherSuites: unknown or insecure",
        ),
        (
            &format!("{kueue}tls: {{minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}}"),
            "tls.cipherSuites: leave it out",
        ),
        (&format!("{kueue}tls: {{curvePreferences: [1]}}"), "tls.curvePreferences: unknown curve 1"),
        (
            &format!("{kueue}internalCertManagement: {{webhookServiceName: '1a'}}"),
            "internalCertManagement.webhookServiceName: ",
        ),
        (
            &format!("{kueue}internalCertManagement: {{webhookSecretName: A}}"),
            "internalCertManagement.webhookSecretName: ",
        ),
        (
            "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nburst: 300.5",
            "document 1 (KubeRay): invalid type",
        ),
        (
            &format!("{own}leaderElection: {{leaseDuration: 5s}}"),
            "leaseDuration (5s) must be longer than renewDeadline (10s)",
        ),
        (&format!("{own}leaderElection: {{retryPeriod: 0s}}"), "retryPeriod (0s), and that longer than 0s"),
        (
            &format!("{kueue}manageJobsWithoutQueueName: true\n---\n{own}log: {{level: debug}}"),
            "document 2 is Quintet's own and must be the first",
        ),
        (
            "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nreconcileConcurrency: 0",
            "must be at least 1",
        ),
        ("appwrapper: {enabled: sometimes}", "document 1 (CodeFlare): invalid type"),
    ] {
        let message = error(text);
        assert!(message.contains(expected), "{text}\n{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn unknown_gates_are_rejected_with_the_nearest_names() {
    let check = |name: &str| {
        let feature_gates = [(name.to_owned(), true)].into();
        let configuration = Configuration { feature_gates, ..Configuration::default() };
        SCHEMA.check(&configuration).map_err(|error| error.to_string())
    };
    for known in ["RayCronJob", "PartialAdmission", "AllAlpha", "AllBeta"] {
        assert_eq!(check(known), Ok(()), "{known}");
    }
    let error = check("RayCronJobs").unwrap_err();
    assert!(error.starts_with("unknown feature gate RayCronJobs; did you mean RayCronJob"), "{error}");
    assert!(error.len() < 200, "the nearest names only: {error}");
    let error = check("partialadmision").unwrap_err();
    assert!(error.contains("did you mean PartialAdmission"), "{error}");
    let error = check("Xyzzy").unwrap_err();
    assert_eq!(error, "unknown feature gate Xyzzy; 'quintet components -o yaml' lists all of them");
    let queue_only = Schema(&[kueue::CONFIG]);
    let ray_gate = read(
        "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\nfeatureGates: {RayCronJob: true}",
    );
    assert!(queue_only.check(&ray_gate).is_err(), "gates belong to components");
}

#[test]
fn sections_survive_being_stored() {
    let old = read("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n");
    assert_eq!(queue(&old).wait_for_pods_ready, None, "off must not come back as the default");
    let mut changed = QueueConfiguration { wait_for_pods_ready: None, ..QueueConfiguration::default() };
    changed.manage_jobs_without_queue_name = true;
    let mut configuration = Configuration::default();
    configuration.set_section("queue", &changed).unwrap();
    assert_eq!(queue(&configuration), changed);
}

#[test]
fn a_section_that_cannot_be_decoded_names_its_component() {
    let own = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\n";
    assert!(error(&format!("{own}queue: {{metrics: 1}}")).starts_with("queue: "));
    assert!(error(&format!("{own}mlflow: {{}}")).contains("unknown field `mlflow`"));
}

#[test]
fn names_of_watched_namespaces_are_checked() {
    let ray = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nwatchNamespace: ";
    for (names, expected) in [("'a,'", &["a"][..]), ("' a , ,b'", &["a", "b"]), ("','", &[]), ("''", &[])] {
        assert_eq!(read(&format!("{ray}{names}")).process.watch_namespaces, expected, "{names}");
    }
    let own = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\nwatchNamespaces: ";
    for text in [format!("{ray}a,B"), format!("{own}[a, B]")] {
        let message = error(&text);
        assert!(message.contains("\"B\" is not a valid namespace name; use lower-case letters"), "{message}");
    }
    assert!(error(&format!("{own}['']")).contains("\"\" is not a valid namespace name"));
}

#[test]
fn the_node_has_a_table_of_images() {
    let read = |images: &str| {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\nnode: {{images: [{images}]}}");
        Schema(&[])
            .read(&text)
            .map(|configuration| configuration.node.images)
            .map_err(|error| error.to_string())
    };
    let images = read("{image: team/app, runtime: {python: {packages: [flask]}}, user: 7}").unwrap();
    let packages = vec!["flask".to_owned()];
    assert_eq!(
        (images[0].runtime.clone(), images[0].user),
        (node::ImageRuntime::Python { packages }, Some(7))
    );
    let refused = read("{image: team/app, runtime: {docker: {}}}").unwrap_err();
    assert!(refused.contains("unknown variant `docker`"), "{refused}");
}
