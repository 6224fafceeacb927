//! A Ray that lives in memory, for simulations: slow, forgetful and given to lying, as its seed says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use parking_lot::Mutex;
use quintet_controller::{clock::Clock, rng::Rng};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Address, Application, Applications, Dashboard, DashboardError, DashboardResult, JobInfo, JobStatus,
    ProxyAddress, Submission,
};

/// How bad things are, each in percent of the polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// No response within the deadline.
    pub silent: u64,
    /// A response of the 5xx kind.
    pub refusing: u64,
    /// A response that cannot be read.
    pub garbled: u64,
    /// An order that is carried out although its response is lost.
    pub lost_answers: u64,
    /// An order that Ray has read and does not want.
    pub refused_orders: u64,
    /// An order that is accepted and comes to nothing.
    pub ignored_orders: u64,
}

/// How jobs run.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Time until a job runs.
    pub pending: Duration,
    /// Time it runs.
    pub running: Duration,
    /// How it ends.
    pub end: JobStatus,
}

impl Default for Life {
    fn default() -> Self {
        Self { pending: Duration::from_secs(2), running: Duration::from_secs(20), end: JobStatus::Succeeded }
    }
}

struct Job {
    submitted: Instant,
    submitted_at: Timestamp,
    life: Life,
    stopped: bool,
}

/// One cluster's Ray.
#[derive(Default)]
struct Ray {
    jobs: BTreeMap<String, Job>,
    config: Option<Value>,
    deployed: Option<Instant>,
    deployments: u64,
}

/// Ray on all clusters of a simulation.
pub struct SimulatedDashboard {
    clock: Clock,
    random: Rng,
    faults: Mutex<Faults>,
    life: Mutex<Life>,
    rays: Mutex<BTreeMap<String, Ray>>,
    /// How often each job was accepted, over all clusters and restarts.
    accepted: Mutex<BTreeMap<String, u64>>,
    /// How often anything was ordered, on all clusters.
    orders: Mutex<u64>,
    /// Heads that are down.
    down: Mutex<BTreeSet<String>>,
    /// Heads that take polls and never response.
    silent: Mutex<BTreeSet<String>>,
}

/// Serve's applications are up this long after they were deployed.
const DEPLOYING: Duration = Duration::from_secs(5);
/// What a client waits for a response.
const DEADLINE: Duration = Duration::from_secs(2);

impl SimulatedDashboard {
    /// A Ray without faults.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            random: Rng::seeded(seed),
            faults: Mutex::default(),
            life: Mutex::default(),
            rays: Mutex::default(),
            accepted: Mutex::default(),
            orders: Mutex::default(),
            down: Mutex::default(),
            silent: Mutex::default(),
        }
    }

    /// From now on, polls meet with these faults.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// Jobs accepted from now on live like this.
    pub fn set_life(&self, life: Life) {
        *self.life.lock() = life;
    }

    /// The head of `host` restarts without fault tolerance: everything it knew is gone.
    pub fn restart(&self, host: &str) {
        self.rays.lock().remove(host);
    }

    /// The head of `host` goes down, or comes back.
    pub fn set_down(&self, host: &str, is_down: bool) {
        let mut down = self.down.lock();
        if is_down {
            down.insert(host.to_owned())
        } else {
            down.remove(host)
        };
    }

    /// The head of `host` takes polls from now on, and never responses.
    pub fn set_silent(&self, host: &str) {
        self.silent.lock().insert(host.to_owned());
    }

    /// Submits a job by other means than the operator.
    pub fn submit_by_hand(&self, host: &str, id: &str) {
        self.accept(host, id, "");
    }

    /// How often a job was accepted.
    pub fn accepted(&self, id: &str) -> u64 {
        self.accepted.lock().get(id).copied().unwrap_or_default()
    }

    /// The Serve config of a cluster, and how often one was deployed.
    pub fn deployed(&self, host: &str) -> (Option<Value>, u64) {
        let rays = self.rays.lock();
        rays.get(host).map_or((None, 0), |ray| (ray.config.clone(), ray.deployments))
    }

    /// Whether Ray on `host` knows a job, and how it is.
    pub fn job_at(&self, host: &str, id: &str) -> Option<JobStatus> {
        self.rays.lock().get(host)?.jobs.get(id).map(|job| job.info().status)
    }

    /// All jobs that were ever accepted, and how often.
    pub fn all_accepted(&self) -> BTreeMap<String, u64> {
        self.accepted.lock().clone()
    }

    /// A job whose entrypoint says that it fails does.
    fn accept(&self, host: &str, id: &str, entrypoint: &str) {
        let mut life = *self.life.lock();
        if entrypoint.contains("exit 1") {
            life.end = JobStatus::Failed;
        }
        let job = Job { submitted: Instant::now(), submitted_at: self.clock.now(), life, stopped: false };
        self.rays.lock().entry(host.to_owned()).or_default().jobs.insert(id.to_owned(), job);
        *self.accepted.lock().entry(id.to_owned()).or_default() += 1;
    }

    /// Waits as the network would, and fails as it might.
    async fn travel(&self, at: &Address) -> Result<(), DashboardError> {
        let url = at.host.clone();
        tokio::time::sleep(Duration::from_millis(self.random.below(200))).await;
        let faults = *self.faults.lock();
        let hits = |percent: u64| self.random.below(100) < percent;
        if self.down.lock().contains(&at.host) {
            return Err(DashboardError::Unreachable { url, cause: "connection refused".to_owned() });
        }
        if hits(faults.silent) || self.silent.lock().contains(&at.host) {
            tokio::time::sleep(DEADLINE).await;
            return Err(DashboardError::Unreachable { url, cause: "timed out after 2 s".to_owned() });
        }
        if hits(faults.refusing) {
            return Err(DashboardError::Refused { url, code: 503, body: "the head is starting".to_owned() });
        }
        if hits(faults.garbled) {
            return Err(DashboardError::Garbage {
                url,
                cause: "expected value at line 1 column 1".to_owned(),
            });
        }
        Ok(())
    }

    /// How often anything was ordered, on all clusters.
    pub fn orders(&self) -> u64 {
        *self.orders.lock()
    }

    /// Brings an order to Ray, and says whether anything comes of it.
    async fn order(&self, at: &Address) -> Result<bool, DashboardError> {
        *self.orders.lock() += 1;
        self.travel(at).await?;
        let faults = *self.faults.lock();
        let hits = |percent: u64| percent > 0 && self.random.below(100) < percent;
        if hits(faults.refused_orders) {
            let body = "a field has the wrong type".to_owned();
            return Err(DashboardError::Refused { url: at.host.clone(), code: 400, body });
        }
        Ok(!hits(faults.ignored_orders))
    }

    /// Whether the response to an order gets lost on its way back.
    fn loses_answer(&self) -> bool {
        self.random.below(100) < self.faults.lock().lost_answers
    }

    fn lost(at: &Address) -> DashboardError {
        DashboardError::Unreachable { url: at.host.clone(), cause: "connection reset".to_owned() }
    }
}

impl Job {
    fn info(&self) -> JobInfo {
        let age = self.submitted.elapsed();
        let after = |wait: Duration| {
            let wait = jiff::SignedDuration::try_from(wait).unwrap_or_default();
            self.submitted_at.checked_add(wait).ok()
        };
        let Life { pending, running, end } = self.life;
        let status = match () {
            () if self.stopped => JobStatus::Stopped,
            () if age < pending => JobStatus::Pending,
            () if age < pending + running => JobStatus::Running,
            () => end,
        };
        JobInfo {
            status,
            message: format!("the job is {}", status.as_str()),
            start_time: (status != JobStatus::Pending).then(|| after(pending)).flatten(),
            end_time: status.is_terminal().then(|| after(pending + running)).flatten(),
        }
    }
}

impl Dashboard for SimulatedDashboard {
    fn job<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, Option<JobInfo>> {
        async move {
            self.travel(at).await?;
            let rays = self.rays.lock();
            Ok(rays.get(&at.host).and_then(|ray| ray.jobs.get(id)).map(Job::info))
        }
        .boxed()
    }

    fn submit<'a>(&'a self, at: &'a Address, job: &'a Submission) -> DashboardResult<'a, ()> {
        async move {
            if !self.order(at).await? {
                return Ok(());
            }
            let id = &job.submission_id;
            if self.rays.lock().get(&at.host).is_some_and(|ray| ray.jobs.contains_key(id)) {
                return Err(DashboardError::AlreadyUsed(id.clone()));
            }
            self.accept(&at.host, id, &job.entrypoint);
            if self.loses_answer() { Err(Self::lost(at)) } else { Ok(()) }
        }
        .boxed()
    }

    fn stop<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, ()> {
        async move {
            self.travel(at).await?;
            let mut rays = self.rays.lock();
            if let Some(job) = rays.get_mut(&at.host).and_then(|ray| ray.jobs.get_mut(id)) {
                job.stopped = job.stopped || !job.info().status.is_terminal();
            }
            Ok(())
        }
        .boxed()
    }

    fn applications<'a>(&'a self, at: &'a Address) -> DashboardResult<'a, Applications> {
        async move {
            self.travel(at).await?;
            let rays = self.rays.lock();
            let Some(ray) = rays.get(&at.host) else { return Ok(Applications::default()) };
            let is_up = ray.deployed.is_some_and(|since| since.elapsed() >= DEPLOYING);
            let config = ray.config.as_ref();
            let wanted = config.and_then(|config| config.get("applications")?.as_array());
            let application = |app: &Value| {
                let name = app.get("name").and_then(Value::as_str).unwrap_or("default").to_owned();
                let status = if is_up { "RUNNING" } else { "DEPLOYING" };
                (name, Application { status: status.to_owned(), ..Application::default() })
            };
            Ok(Applications { applications: wanted.into_iter().flatten().map(application).collect() })
        }
        .boxed()
    }

    fn deploy<'a>(&'a self, at: &'a Address, config: &'a Value) -> DashboardResult<'a, ()> {
        async move {
            if !self.order(at).await? {
                return Ok(());
            }
            let mut rays = self.rays.lock();
            let ray = rays.entry(at.host.clone()).or_default();
            // Another capacity alone does not restart what runs.
            let applications = |config: &Value| config.get("applications").cloned();
            if ray.config.as_ref().and_then(applications) != applications(config) {
                ray.deployed = Some(Instant::now());
            }
            ray.config = Some(config.clone());
            ray.deployments += 1;
            drop(rays);
            if self.loses_answer() { Err(Self::lost(at)) } else { Ok(()) }
        }
        .boxed()
    }

    fn is_healthy<'a>(&'a self, _: &'a ProxyAddress) -> BoxFuture<'a, bool> {
        async move { self.random.below(100) >= self.faults.lock().refusing }.boxed()
    }
}
