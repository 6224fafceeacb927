//! A running platform.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// How long anything may take. Starting Ray takes a quarter of a minute on a machine with nothing else to do.
const PATIENCE: Duration = Duration::from_mins(8);
/// How long an environment may take to be made: packages are downloaded and compiled.
const INSTALLATION: Duration = Duration::from_mins(15);
/// Images that cases use besides those that are mapped without being asked for, the kinds of jobs that they queue, and gates
/// that are off by default.
const CONFIGURATION: &str = "apiVersion: config.quintet.dev/v1alpha1
kind: Configuration
featureGates:
  RayClusterHistoryServer: true
queue:
  integrations:
    frameworks: [batch/job, ray.io/raycluster, ray.io/rayjob, workload.codeflare.dev/appwrapper]
  multiKueue:
    workerLostTimeout: 3s
node:
  images:
  - image: moto
    runtime: {python: {packages: ['moto[server]==5.2.5']}}
  - image: codeflare-sdk
    runtime: {python: {packages: ['codeflare-sdk==0.33.1', 'kubernetes==35.0.0']}}
  - image: kubernetes-client
    runtime: {python: {packages: ['kubernetes==36.0.3']}}
  - image: model-registry-client
    runtime: {python: {packages: ['model-registry=={version}']}}
";
/// Between two looks at an object.
const PERIOD: Duration = Duration::from_millis(200);

/// Why the platform cannot be tested here.
pub(crate) fn obstacle() -> Option<&'static str> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let unshare = Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"]).status();
    match (is_root, unshare.is_ok_and(|status| status.success())) {
        (false, _) => Some("addresses of pods are reached from this machine, which needs the root user"),
        (true, false) => Some("this machine does not allow namespaces"),
        (true, true) => None,
    }
}

/// What `quintet down` must not leave behind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traces {
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    cgroups: BTreeSet<String>,
}

/// A platform that `quintet up` runs.
pub(crate) struct Platform {
    up: Cell<Option<Child>>,
    program: Program,
    directory: PathBuf,
    /// Whether the directory is removed at the end.
    is_temporary: bool,
    /// A configuration file.
    configuration: Option<PathBuf>,
    before: Traces,
    namespace: Cell<u32>,
}

/// Quintet's program, and who runs it.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// An ordinary user; otherwise the one who runs the tests.
    pub(crate) user: Option<u32>,
}

impl Program {
    /// The one that was built for these tests.
    pub(crate) fn built() -> Self {
        Self { path: env!("CARGO_BIN_EXE_quintet").into(), user: None }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(user) = self.user {
            become_user(&mut command, user);
        }
        command
    }
}

/// Runs a command as another user, without what the environment says about this one.
pub(crate) fn become_user(command: &mut Command, user: u32) {
    command.uid(user).gid(user).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
}

impl Platform {
    /// The platform that cases share.
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // Environments are kept between runs where a directory is given.
        let kept = std::env::var_os("QUINTET_PLATFORM_DIR").map(PathBuf::from);
        let is_temporary = kept.is_none();
        if let Some(directory) = &kept {
            forget_earlier_run(directory);
        }
        let mut platform = Self::new(kept.unwrap_or_else(|| temporary("platform")), Program::built());
        platform.is_temporary = is_temporary;
        std::fs::create_dir_all(&platform.directory).unwrap();
        let configuration = platform.directory.join("configuration.yaml");
        std::fs::write(&configuration, CONFIGURATION).unwrap();
        platform.configuration = Some(configuration);
        platform.started().await
    }

    /// A platform that does not run yet. Its directory is removed at the end.
    pub(crate) fn new(directory: PathBuf, program: Program) -> Self {
        let before = Traces::look(&directory, &program.path);
        let (up, namespace) = (Cell::new(None), Cell::new(0));
        Self { up, program, directory, is_temporary: true, configuration: None, before, namespace }
    }

    /// Another platform beside this one, which does not run yet: with the same configuration and Python environments, and
    /// the same name for the namespace of the case. It has a copy of the program, to tell processes apart.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let directory = temporary(name);
        std::fs::create_dir_all(directory.join("node")).unwrap();
        let environments = self.directory.join("node/environments").canonicalize().unwrap();
        std::os::unix::fs::symlink(environments, directory.join("node/environments")).unwrap();
        let path = directory.join("quintet");
        std::fs::copy(&self.program.path, &path).unwrap();
        let mut other = Self::new(directory, Program { path, user: None });
        other.configuration.clone_from(&self.configuration);
        other.namespace.set(self.namespace.get());
        other
    }

    /// The same platform, running.
    pub(crate) async fn started(self) -> Self {
        self.up();
        self.create_namespace().await;
        self
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn up_command(&self) -> Command {
        let mut command = self.program.command();
        command.args(["up", "--port", "0", "--data-dir"]).arg(&self.directory);
        if let Some(file) = &self.configuration {
            command.arg("--config").arg(file);
        }
        command
    }

    /// Starts `quintet up` and does not wait for it.
    pub(crate) fn launch(&self) {
        self.up.set(Some(self.up_command().stdout(Stdio::null()).spawn().unwrap()));
    }

    /// Starts `quintet up` and waits until it says that it is up.
    pub(crate) fn up(&self) {
        let mut up = self.up_command().stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says that it is up").unwrap();
        assert!(first.starts_with("Quintet is up at https://127.0.0.1:"), "{first}");
        // A write to a closed pipe kills the process; this one is read to its end.
        std::thread::spawn(move || lines.for_each(drop));
        self.up.set(Some(up));
    }

    /// Kills `quintet up`, which leaves its pods running.
    pub(crate) fn kill(&self) {
        let mut up = self.up.take().unwrap();
        up.kill().unwrap();
        up.wait().unwrap();
    }

    /// Stops everything, and compares with what there was before.
    pub(crate) fn down(&self) {
        let bridge = self.bridge();
        let mut down = self.program.command();
        let output = down.arg("down").arg("--data-dir").arg(&self.directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if let Some(mut up) = self.up.take() {
            assert!(up.wait().unwrap().success(), "quintet up ends well");
        }
        let mut left = Traces::look(&self.directory, &self.program.path).without(&self.before);
        left.interfaces.retain(|name| !is_of_another(name, &bridge));
        assert_eq!(left, Traces::default(), "quintet down leaves nothing");
        if self.is_temporary {
            std::fs::remove_dir_all(&self.directory).unwrap();
        }
    }

    /// The name of its bridge.
    fn bridge(&self) -> String {
        let network = std::fs::read(self.directory.join("node/network.json")).unwrap_or_default();
        let network: Value = serde_json::from_slice(&network).unwrap_or_default();
        network["bridge"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(crate) async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        kube::Client::try_from(config.unwrap()).unwrap()
    }

    /// The namespace of the case that runs.
    pub(crate) fn namespace(&self) -> String {
        // Unlike those of an earlier run on the same directory.
        format!("case-{}-{}", std::process::id(), self.namespace.get())
    }

    async fn create_namespace(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(self.namespace());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Removes what a case has made.
    pub(crate) async fn clean(&self) {
        // Before their namespace, in which nothing new can be made: a cluster with state in Redis is cleaned up by a Job.
        for (api_version, kind) in [
            ("workload.codeflare.dev/v1beta2", "AppWrapper"),
            ("ray.io/v1", "RayJob"),
            ("ray.io/v1", "RayService"),
            ("ray.io/v1", "RayCluster"),
        ] {
            let objects = self.objects(api_version, kind).await;
            let (options, all) = (DeleteParams::default(), ListParams::default());
            let _ = objects.delete_collection(&options, &all).await.unwrap();
            eventually(&format!("the end of every {kind}"), async || {
                objects.list_metadata(&all).await.unwrap().items.is_empty().then_some(())
            })
            .await;
        }
        let mlflows: Api<DynamicObject> =
            Api::all_with(self.client().await, &resource("mlflow.opendatahub.io/v1", "MLflow"));
        let _ = mlflows.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        self.delete_namespace(crate::mlflow::NAMESPACE).await;
        self.delete_namespace(&self.namespace()).await;
        for kind in
            ["ClusterQueue", "ResourceFlavor", "AdmissionCheck", "MultiKueueConfig", "MultiKueueCluster"]
        {
            let queues: Api<DynamicObject> =
                Api::all_with(self.client().await, &resource("kueue.x-k8s.io/v1beta2", kind));
            let _ = queues.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        }
        self.namespace.set(self.namespace.get() + 1);
        self.create_namespace().await;
    }

    async fn delete_namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        match namespaces.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            deleted => drop(deleted.unwrap()),
        }
        eventually(&format!("the end of namespace {name}"), async || {
            namespaces.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Why an image cannot be used here: what keeps its environment from being made, such as a machine without a package
    /// index.
    pub(crate) async fn image_obstacle(&self, image: &str) -> Option<String> {
        let container =
            json!({ "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["true"] });
        let spec = json!({ "restartPolicy": "Never", "containers": [container] });
        let name = format!("installs-{}", image.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let pod = ("v1", "Pod", name.as_str());
        self.apply(
            &json!({ "apiVersion": pod.0, "kind": pod.1, "metadata": { "name": pod.2 }, "spec": spec }),
        )
        .await;
        let why = |pod: &Value| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            let is_stuck = matches!(waiting["reason"].as_str(), Some("ErrImagePull" | "ImagePullBackOff"));
            is_stuck.then(|| waiting["message"].to_string())
        };
        let is_decided = |pod: &Value| pod["status"]["phase"] == "Succeeded" || why(pod).is_some();
        let api = self.objects(pod.0, pod.1).await;
        let found = tokio::time::timeout(INSTALLATION, awaited(&api, pod.2, is_decided)).await;
        why(&found.unwrap_or_else(|_| panic!("waited {} s in vain for {image}", INSTALLATION.as_secs())))
    }

    /// Prints what may explain a failure.
    pub(crate) fn describe(&self) {
        for namespace in [self.namespace().as_str(), crate::mlflow::NAMESPACE] {
            for arguments in [
                ["get", "all,appwrappers,rayclusters,rayjobs,rayservices,workloads,modelregistries,catalogs"],
                ["describe", "mlflows,pods"],
                ["get", "events"],
            ] {
                let mut command = self.kubectl(&arguments);
                command.args(["-n", namespace]);
                let Ok(output) = command.output() else { return };
                println!("{}", String::from_utf8_lossy(&output.stdout));
            }
        }
    }

    /// kubectl on this platform.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Command {
        let program = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.kubeconfig()).args(arguments);
        command
    }

    /// Applies an object in the namespace of the case.
    pub(crate) async fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        self.api(object).await.patch(name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    /// The Python environment of pods whose image begins with a requirement.
    pub(crate) fn environment(&self, requirement: &str) -> PathBuf {
        let environments = std::fs::read_dir(self.directory.join("node/environments")).unwrap();
        let is_wanted = |path: &PathBuf| {
            let description = std::fs::read(path.join("quintet-environment.json")).unwrap_or_default();
            let description: Value = serde_json::from_slice(&description).unwrap_or_default();
            description["packages"][0] == requirement
        };
        let found = environments.map(|entry| entry.unwrap().path()).find(is_wanted);
        found.unwrap_or_else(|| panic!("{requirement} is not installed"))
    }

    /// The Python environment of pods with Ray.
    pub(crate) fn ray_environment(&self) -> PathBuf {
        self.environment(&crate::ray::requirement())
    }

    /// Applies an object of the whole cluster.
    pub(crate) async fn apply_to_cluster(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let api: Api<DynamicObject> = Api::all_with(self.client().await, &resource(api_version, kind));
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    /// Runs a program with the Python that pods with Ray have, and returns what it prints.
    pub(crate) async fn ray_python(&self, program: &str) -> String {
        let mut command = tokio::process::Command::new(self.ray_environment().join("bin/python"));
        let output = command.args(["-c", program]).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Kills the first processes of a pod's containers, as `kill -9` on the machine does.
    pub(crate) async fn kill_processes_of(&self, pod: &str) {
        let pod = self.pods().await.get(pod).await.unwrap();
        let uid = pod.metadata.uid.unwrap();
        let is_of_pod = |pid: &&String| {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            cgroups.contains(&uid)
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids: Vec<String> =
            processes.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        let of_pod: Vec<&String> = pids.iter().filter(is_of_pod).collect();
        assert!(!of_pod.is_empty(), "no process of the pod {uid}");
        Command::new("kill").arg("-9").args(of_pod).status().unwrap();
    }

    /// Applies an object in another namespace.
    pub(crate) async fn apply_to(&self, namespace: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client().await, namespace, &resource(api_version, kind));
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    async fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        Api::namespaced_with(self.client().await, &self.namespace(), &resource(api_version, kind))
    }

    /// The objects of a kind.
    pub(crate) async fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        self.api(&json!({ "apiVersion": api_version, "kind": kind })).await
    }

    /// Waits until an object is as it should be; returns it.
    pub(crate) async fn wait(
        &self,
        (api_version, kind, name): (&str, &str, &str),
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_for(&self.objects(api_version, kind).await, name, &format!("{what} ({kind})"), holds).await
    }

    /// The same for objects of any namespace, or of none.
    pub(crate) async fn wait_for(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = tokio::time::timeout(PATIENCE, awaited(api, name, holds)).await;
        found.unwrap_or_else(|_| panic!("waited {} s in vain for {name} to be {what}", PATIENCE.as_secs()))
    }

    pub(crate) async fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client().await, &self.namespace())
    }

    /// The log of a container.
    pub(crate) async fn log(&self, pod: &str, container: Option<&str>) -> String {
        let parameters = LogParams { container: container.map(str::to_owned), ..LogParams::default() };
        self.pods().await.logs(pod, &parameters).await.unwrap()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = up.kill();
            let _ = up.wait();
            let _ = self.program.command().arg("down").arg("--data-dir").arg(&self.directory).status();
        }
    }
}

/// Removes what an interrupted run left in a directory; Python environments stay.
fn forget_earlier_run(directory: &Path) {
    let down = Program::built().command().arg("down").arg("--data-dir").arg(directory).status().unwrap();
    assert!(down.success());
    for (part, kept) in [(directory.to_owned(), "node"), (directory.join("node"), "environments")] {
        for entry in std::fs::read_dir(part).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                _ if entry.file_name() == kept => {}
                true => std::fs::remove_dir_all(entry.path()).unwrap(),
                false => std::fs::remove_file(entry.path()).unwrap(),
            }
        }
    }
}

/// Whether a network interface belongs to another platform on this machine.
fn is_of_another(interface: &str, bridge: &str) -> bool {
    let is_other = |name: &str| name.starts_with("qnt-") && name != bridge;
    let master = std::fs::read_link(format!("/sys/class/net/{interface}/master"));
    is_other(interface) || master.is_ok_and(|path| is_other(&path.file_name().unwrap().to_string_lossy()))
}

/// The processes of this machine with their arguments, one per line.
pub(crate) fn processes() -> String {
    let processes = Command::new("ps").args(["-eo", "pid,args", "--no-headers"]).output().unwrap();
    String::from_utf8_lossy(&processes.stdout).into_owned()
}

/// A path for a directory of this run.
pub(crate) fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id()))
}

/// Watches an object until it is as it should be. A watch that ends is begun again.
async fn awaited(api: &Api<DynamicObject>, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let fields = format!("metadata.name={name}");
    loop {
        let listed = api.list(&ListParams::default().fields(&fields)).await.unwrap();
        let version = listed.metadata.resource_version.clone().unwrap_or_default();
        let changes = api.watch(&WatchParams::default().fields(&fields), &version).await.unwrap();
        let before = futures::stream::iter(listed.items).map(|object| Ok(WatchEvent::Modified(object)));
        let mut states = std::pin::pin!(before.chain(changes));
        while let Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) = states.next().await {
            let object = serde_json::to_value(object).unwrap();
            if holds(&object) {
                return object;
            }
        }
    }
}

/// Looks until it finds something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    found.unwrap_or_else(|_| panic!("waited {} s in vain for {what}", PATIENCE.as_secs()))
}

pub(crate) fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

impl Traces {
    fn without(self, before: &Self) -> Self {
        Self {
            processes: &self.processes - &before.processes,
            mounts: &self.mounts - &before.mounts,
            interfaces: &self.interfaces - &before.interfaces,
            cgroups: &self.cgroups - &before.cgroups,
        }
    }

    fn look(directory: &Path, program: &Path) -> Self {
        let (directory, program) = (directory.display().to_string(), format!("{} ", program.display()));
        let lines = |text: String, part: &str| -> BTreeSet<String> {
            text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
        };
        let processes = processes();
        let names = |directory: &str| -> BTreeSet<String> {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        // Groups are named after pods; those of other platforms on this machine have shims with other directories.
        let shims = processes.lines().filter(|line| line.contains(" pod-shim "));
        let others =
            shims.filter(|line| !line.contains(&directory)).filter_map(|line| line.rsplit('/').next());
        let others: Vec<String> = others.map(|uid| format!("pod{uid}-")).collect();
        let is_own =
            |name: &str| name.starts_with("pod") && !others.iter().any(|other| name.starts_with(other));
        let cgroups = ["", "memory/", "cpu/", "pids/"].map(|part| format!("/sys/fs/cgroup/{part}quintet"));
        Self {
            processes: lines(processes.clone(), &directory)
                .into_iter()
                .chain(lines(processes, &program))
                .collect(),
            mounts: lines(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), &directory),
            interfaces: names("/sys/class/net"),
            cgroups: cgroups.iter().flat_map(|path| names(path)).filter(|name| is_own(name)).collect(),
        }
    }
}
