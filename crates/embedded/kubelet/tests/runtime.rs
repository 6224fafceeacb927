//! Pods as processes: isolation, streams, exit codes. These tests need root, as namespaces without a user namespace do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use quintet_kubelet::shim::protocol::{
    Channel, ContainerConfig, ContainerState, ExecConfig, Failure, Identity, Mount, MountSource,
    ProcessConfig, Response, RootConfig, TerminalSize,
};
use quintet_kubelet::shim::{NetworkMode, SandboxConfig, Shim, ShimError};

/// Skips a test where namespaces cannot be made.
macro_rules! needs_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: namespaces need root");
            return;
        }
    };
}

/// One pod in a directory of its own.
struct Pod {
    directory: tempfile::TempDir,
    shim: Shim,
    pid: u32,
}

impl Pod {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sandbox = SandboxConfig { hostname: "web-0".into(), network: NetworkMode::Pod };
        let program = Path::new(env!("CARGO_BIN_EXE_quintet-kubelet-shim"));
        let (shim, pid) = Shim::start(program, directory.path(), &sandbox).await.unwrap();
        Self { directory, shim, pid }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn container(&self, name: &str, script: &str) -> ContainerConfig {
        ContainerConfig {
            name: name.into(),
            id: format!("{name}-0"),
            attempt: 0,
            directory: self.path(&format!("containers/{name}/0")),
            log: self.path(&format!("logs/{name}/0.log")),
            process: shell(script),
            root: RootConfig::default(),
            cgroups: Vec::new(),
            oom_score_adj: 1000,
            stdin: false,
            processes_of: None,
        }
    }

    /// Runs a script to its end; its output, both streams together, and its exit code.
    async fn run(&self, script: &str) -> (String, i32) {
        self.run_with(script, |_| {}).await
    }

    async fn run_with(&self, script: &str, change: impl FnOnce(&mut ContainerConfig)) -> (String, i32) {
        let mut config = self.container("main", script);
        change(&mut config);
        self.shim.start_container(config).await.unwrap();
        let state = self.ended("main").await;
        (self.log("main"), state.exit.unwrap().code)
    }

    async fn ended(&self, name: &str) -> ContainerState {
        self.until(|states| states.get(name).filter(|state| state.exit.is_some()).cloned()).await
    }

    async fn until<T>(&self, condition: impl Fn(&BTreeMap<String, ContainerState>) -> Option<T>) -> T {
        let mut watch = self.shim.watch().await.unwrap();
        loop {
            if let Some(found) = condition(&watch.next().await.unwrap()) {
                return found;
            }
        }
    }

    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("logs/{name}/0.log"))).unwrap();
        text.lines().flat_map(|line| [line.splitn(4, ' ').nth(3).unwrap_or_default(), "\n"]).collect()
    }

    /// Runs a command in the container `main`.
    async fn exec(&self, script: &str, stdin: &[u8]) -> (String, String, i32) {
        let config = ExecConfig {
            container: "main".into(),
            command: shell(script).command,
            tty: false,
            stdin: !stdin.is_empty(),
        };
        let mut streams = self.shim.exec(config).await.unwrap();
        if !stdin.is_empty() {
            streams.send(Channel::Stdin, stdin).await.unwrap();
            streams.send(Channel::Stdin, b"").await.unwrap();
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match streams.receive().await.unwrap().unwrap() {
                (Channel::Stdout, bytes) => out.extend(bytes),
                (Channel::Stderr, bytes) => err.extend(bytes),
                (Channel::Control, message) => {
                    let Response::Exited(exit) = serde_json::from_slice(&message).unwrap() else {
                        panic!("{}", String::from_utf8_lossy(&message));
                    };
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (text(out), text(err), exit.code);
                }
                (channel, _) => panic!("{channel:?}"),
            }
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid).unwrap());
        // It may have ended already.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

fn shell(script: &str) -> ProcessConfig {
    ProcessConfig {
        command: vec!["sh".into(), "-c".into(), script.into()],
        environment: vec![
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("GREETING".into(), "hello".into()),
        ],
        working_directory: "/".into(),
        identity: Identity { uid: 10_000, gid: 10_000, ..Identity::default() },
        tty: false,
    }
}

fn bind(source: &Path, target: &str, is_read_only: bool) -> Mount {
    Mount { target: target.into(), source: MountSource::Bind(source.to_owned()), is_read_only }
}

#[tokio::test]
async fn output_and_exit_code_of_a_container_are_kept() {
    needs_root!();
    let pod = Pod::start().await;
    let (output, code) = pod.run("echo $GREETING; echo oops >&2; exit 3").await;
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, code), (vec!["hello", "oops"], 3));
}

#[tokio::test]
async fn a_container_is_process_1_and_sees_no_other_process() {
    needs_root!();
    let pod = Pod::start().await;
    let (output, _) = pod.run("echo $$; ls /proc | grep -c '^[0-9]'; hostname").await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "1");
    assert!(lines[1].parse::<u32>().unwrap() <= 4, "{output}");
    assert_eq!(lines[2], "web-0");
}

#[tokio::test]
async fn only_the_variables_of_the_container_are_in_its_environment() {
    needs_root!();
    let pod = Pod::start().await;
    let (output, _) = pod.run_with("", |config| config.process.command = vec!["env".into()]).await;
    let mut names: Vec<&str> = output.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["GREETING", "PATH"]);
}

#[tokio::test]
async fn the_system_cannot_be_changed_and_the_rest_is_the_containers_own() {
    needs_root!();
    let pod = Pod::start().await;
    let script = "touch /usr/probe && echo wrote-usr; echo mine > /etc/probe && cat /etc/probe; \
                  echo 1 > /proc/sys/kernel/panic && echo wrote-sysctl; echo x > /tmp/x && echo wrote-tmp; \
                  ls /root /home | wc -l";
    let as_root = |config: &mut ContainerConfig| config.process.identity = Identity::default();
    let (output, _) = pod.run_with(script, as_root).await;
    assert!(output.contains("mine") && output.contains("wrote-tmp"), "{output}");
    assert!(!output.contains("wrote-usr") && !output.contains("wrote-sysctl"), "{output}");
    assert!(!Path::new("/etc/probe").exists() && !Path::new("/usr/probe").exists());
}

#[tokio::test]
async fn a_masked_directory_is_empty() {
    needs_root!();
    let pod = Pod::start().await;
    let secret = tempfile::tempdir_in("/usr/local").unwrap();
    fs::write(secret.path().join("key"), "secret").unwrap();
    let path = secret.path().display().to_string();
    let (output, code) = pod
        .run_with(&format!("ls {path}; cat {path}/key"), |config| {
            config.process.identity = Identity::default();
            config.root.masked.push(secret.path().to_owned());
        })
        .await;
    assert!(code != 0 && !output.contains("secret"), "{output}");
}

#[tokio::test]
async fn volumes_are_mounted_where_the_container_wants_them() {
    needs_root!();
    let pod = Pod::start().await;
    let (data, settings) = (pod.path("data"), pod.path("settings"));
    fs::create_dir(&data).unwrap();
    fs::write(&settings, "colour=blue").unwrap();
    std::os::unix::fs::chown(&data, Some(10_000), Some(10_000)).unwrap();
    let script = "echo result > /var/lib/app/data/out; cat /etc/app/settings; \
                  echo x > /etc/app/settings || echo read-only; df -P /cache | tail -1 | cut -d' ' -f1";
    let (output, code) = pod
        .run_with(script, |config| {
            config.root.mounts = vec![
                bind(&data, "/var/lib/app/data", false),
                bind(&settings, "/etc/app/settings", true),
                Mount {
                    target: "/cache".into(),
                    source: MountSource::Memory(Some(1 << 20)),
                    is_read_only: false,
                },
            ];
        })
        .await;
    assert_eq!(code, 0, "{output}");
    assert_eq!(fs::read_to_string(data.join("out")).unwrap(), "result\n");
    assert!(
        output.contains("colour=blue") && output.contains("read-only") && output.contains("tmpfs"),
        "{output}"
    );
}

#[tokio::test]
async fn a_link_in_a_volume_does_not_lead_a_mount_out_of_the_container() {
    needs_root!();
    let pod = Pod::start().await;
    let (volume, outside) = (pod.path("volume"), pod.path("outside"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, volume.join("link")).unwrap();
    let mut config = pod.container("main", "ls /v");
    let deep =
        Mount { target: "/v/link/deep".into(), source: MountSource::Memory(None), is_read_only: false };
    config.root.mounts = vec![bind(&volume, "/v", false), deep];
    let Err(ShimError::Failed { failure, .. }) = pod.shim.start_container(config).await else { panic!() };
    assert_eq!(failure, Failure::Create);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn a_part_of_a_volume_is_made_and_never_outside_of_it() {
    needs_root!();
    let pod = Pod::start().await;
    let (volume, outside) = (pod.path("volume"), pod.path("outside"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, volume.join("link")).unwrap();
    std::os::unix::fs::chown(&volume, Some(10_000), Some(10_000)).unwrap();
    let part = |target: &str, path: &str| Mount {
        target: target.into(),
        source: MountSource::Part { volume: volume.clone(), path: path.into() },
        is_read_only: false,
    };
    let new = part("/new", "a/b");
    pod.run_with("echo x > /new/file || true", |config| config.root.mounts = vec![new]).await;
    assert!(volume.join("a/b").is_dir());
    let mut stolen = pod.container("thief", "cat /stolen/secret");
    stolen.root.mounts = vec![part("/stolen", "link")];
    let started = pod.shim.start_container(stolen).await;
    if started.is_ok() {
        pod.ended("thief").await;
    }
    assert!(!pod.log("thief").lines().any(|line| line == "secret"));
}

#[tokio::test]
async fn a_read_only_root_leaves_volumes_writable() {
    needs_root!();
    let pod = Pod::start().await;
    let data = pod.path("data");
    fs::create_dir(&data).unwrap();
    let (output, _) = pod
        .run_with("echo x > /probe && echo wrote-root; echo x > /data/x && echo wrote-data", |config| {
            config.process.identity = Identity::default();
            config.root.is_read_only = true;
            config.root.mounts = vec![bind(&data, "/data", false)];
        })
        .await;
    assert!(!output.contains("wrote-root") && output.contains("wrote-data"), "{output}");
}

#[tokio::test]
async fn a_read_only_root_has_a_home_and_a_working_directory() {
    needs_root!();
    let pod = Pod::start().await;
    let (output, _) = pod
        .run_with("pwd; stat --format=%u $HOME; touch $HOME/x || echo read-only", |config| {
            config.root.is_read_only = true;
            config.process.environment.push(("HOME".into(), "/home/user".into()));
            config.process.working_directory = "/app/here".into();
        })
        .await;
    assert!(output.contains("/app/here\n10000\n") && output.contains("read-only\n"), "{output}");
}

#[tokio::test]
async fn the_root_user_has_no_capabilities_that_were_not_given() {
    needs_root!();
    let pod = Pod::start().await;
    let script = "mount -t tmpfs none /tmp && echo mounted; chown 5:5 /tmp && echo changed-owner; \
                  grep NoNewPrivs /proc/self/status";
    let (output, _) = pod
        .run_with(script, |config| {
            // CAP_CHOWN
            config.process.identity = Identity { capabilities: vec![0], ..Identity::default() };
        })
        .await;
    assert!(!output.contains("mounted") && output.contains("changed-owner"), "{output}");
    assert!(output.contains("NoNewPrivs:\t1"), "{output}");
}

#[tokio::test]
async fn a_command_that_does_not_exist_says_so() {
    needs_root!();
    let pod = Pod::start().await;
    let mut config = pod.container("main", "");
    config.process.command = vec!["no-such-program".into()];
    let Err(ShimError::Failed { failure, message }) = pod.shim.start_container(config).await else {
        panic!()
    };
    assert_eq!(failure, Failure::Start);
    assert_eq!(message, "exec: \"no-such-program\": executable file not found in $PATH");
}

#[tokio::test]
async fn a_mount_that_fails_starts_nothing() {
    needs_root!();
    let pod = Pod::start().await;
    let mut config = pod.container("main", "echo must not run");
    config.root.mounts = vec![bind(Path::new("/no/such/place"), "/data", false)];
    let Err(ShimError::Failed { failure, message }) = pod.shim.start_container(config).await else {
        panic!()
    };
    assert_eq!(failure, Failure::Create);
    assert!(message.contains("/data"), "{message}");
    assert_eq!(pod.log("main"), "");
}

#[tokio::test]
async fn signals_reach_the_first_process_and_its_children_die_with_it() {
    needs_root!();
    let pod = Pod::start().await;
    // It answers once it waits for signals.
    let mut config = pod.container("main", "trap 'exit 7' TERM; sleep 1000 & read line; echo $line; wait");
    config.stdin = true;
    pod.shim.start_container(config).await.unwrap();
    let mut streams = pod.shim.attach("main", true).await.unwrap();
    streams.send(Channel::Stdin, b"ready\n").await.unwrap();
    assert_eq!(streams.receive().await.unwrap(), Some((Channel::Stdout, b"ready\n".to_vec())));
    pod.shim.signal("main", 15).await.unwrap();
    let exit = pod.ended("main").await.exit.unwrap();
    assert_eq!((exit.code, exit.signal), (7, 0));
}

#[tokio::test]
async fn a_killed_container_reports_its_signal() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("main", "sleep 1000")).await.unwrap();
    pod.shim.signal("main", 9).await.unwrap();
    let exit = pod.ended("main").await.exit.unwrap();
    assert_eq!((exit.code, exit.signal), (137, 9));
}

#[tokio::test]
async fn commands_run_beside_the_first_process() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("main", "echo data > /tmp/file; exec sleep 1000")).await.unwrap();
    pod.until(|states| states.contains_key("main").then_some(())).await;
    let (out, err, code) =
        pod.exec("cat; echo $GREETING; ls /proc/1 >/dev/null; echo bad >&2; exit 4", b"piped\n").await;
    assert_eq!((out.as_str(), err.as_str(), code), ("piped\nhello\n", "bad\n", 4));
    let (out, _, _) = pod.exec("hostname; tr '\\0' ' ' < /proc/1/cmdline", b"").await;
    assert_eq!(out, "web-0\nsleep 1000 ");
}

#[tokio::test]
async fn a_terminal_has_a_size_that_can_change() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("main", "sleep 1000")).await.unwrap();
    let command = shell("read line; stty size; test -t 2 && echo terminal").command;
    let config = ExecConfig { container: "main".into(), command, tty: true, stdin: true };
    let mut streams = pod.shim.exec(config).await.unwrap();
    let size = serde_json::to_vec(&TerminalSize { width: 91, height: 37 }).unwrap();
    streams.send(Channel::Resize, &size).await.unwrap();
    streams.send(Channel::Stdin, b"go\n").await.unwrap();
    let mut output = Vec::new();
    while let Some((Channel::Stdout, bytes)) = streams.receive().await.unwrap() {
        output.extend(bytes);
    }
    let output = String::from_utf8(output).unwrap();
    assert!(output.contains("37 91") && output.contains("terminal"), "{output}");
}

#[tokio::test]
async fn standard_input_stays_open_for_the_next_client() {
    needs_root!();
    let pod = Pod::start().await;
    let mut config = pod.container("main", "read a; echo $a; read b; echo $b");
    config.stdin = true;
    pod.shim.start_container(config).await.unwrap();
    for line in [b"one\n", b"two\n"] {
        let mut streams = pod.shim.attach("main", true).await.unwrap();
        streams.send(Channel::Stdin, line).await.unwrap();
        // Before the next client, which has a connection of its own.
        assert_eq!(streams.receive().await.unwrap(), Some((Channel::Stdout, line.to_vec())));
    }
    pod.ended("main").await;
    assert_eq!(pod.log("main"), "one\ntwo\n");
}

#[tokio::test]
async fn a_kubelet_that_comes_back_finds_the_containers() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("main", "sleep 1000")).await.unwrap();
    let found = Shim::of(pod.directory.path()).status().await.unwrap();
    assert_eq!(found["main"].id, "main-0");
    assert_eq!(found["main"].exit, None);
}

#[tokio::test]
async fn nothing_outlives_the_shim() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("main", "sleep 1000 & sleep 1000")).await.unwrap();
    let pid = pod.shim.status().await.unwrap()["main"].pid;
    let handle = rustix::process::pidfd_open(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::PidfdFlags::empty(),
    )
    .unwrap();
    pod.shim.shut_down().await.unwrap();
    // Readable when the process has ended.
    let mut ended = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, None));
    assert_eq!(ready.unwrap(), 1);
    assert!(pod.shim.status().await.is_err());
}

#[tokio::test]
async fn two_containers_share_the_network_of_the_pod() {
    needs_root!();
    let pod = Pod::start().await;
    pod.shim.start_container(pod.container("a", "readlink /proc/self/ns/net")).await.unwrap();
    pod.shim.start_container(pod.container("b", "readlink /proc/self/ns/net")).await.unwrap();
    pod.ended("a").await;
    pod.ended("b").await;
    let host = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert_eq!(pod.log("a"), pod.log("b"));
    assert_ne!(pod.log("b").trim(), host);
}
