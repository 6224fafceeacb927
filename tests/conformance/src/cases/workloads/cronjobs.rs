//! CronJobs. No case waits for a full minute: a schedule that was missed is made up for.

use anyhow::{Context as _, ensure};
use jiff::{SignedDuration, Timestamp};
use quintet_foundation::clock::Clock;
use serde_json::{Value, json};

use super::super::cases;
use super::{JOBS, Resource, ending_template, is_owned_by, is_true, job_template, name_of, until_event};
use crate::World;

cases! { "workloads: CronJob":
    "a job is made for the latest time that was missed" => missed,
    "with Forbid a job that runs keeps the next from starting" => forbid,
    "with Replace the next job replaces one that runs" => replace,
    "jobs beyond the history limit are removed" => history,
    "a suspended cron job makes no jobs" => suspend,
}

const CRON_JOBS: Resource = Resource::new("batch/v1", "CronJob", "cronjobs");
/// Two schedules that are due at different times of the hour.
const HOURLY: &str = "0 * * * *";
const HALF_PAST: &str = "30 * * * *";

async fn create(world: &World, name: &str, template: Value, more: Value) -> anyhow::Result<Value> {
    let mut spec = more;
    spec["schedule"] = json!(HOURLY);
    spec["timeZone"] = json!("Etc/UTC");
    spec["jobTemplate"] =
        json!({ "metadata": { "labels": { "of": name } }, "spec": { "template": template } });
    CRON_JOBS.create(world, name, spec).await
}

/// Makes the controller believe that it ran last two hours ago.
async fn miss(world: &World, name: &str) -> anyhow::Result<()> {
    let path = format!("{}/status", CRON_JOBS.path(world, name));
    let before = Clock::system().now() - SignedDuration::from_hours(2);
    let patch = json!({ "status": { "lastScheduleTime": format!("{before:.0}") } });
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200).map(drop)
}

/// Another time is missed.
async fn miss_again(world: &World, name: &str) -> anyhow::Result<()> {
    CRON_JOBS.merge(world, name, &json!({ "spec": { "schedule": HALF_PAST } })).await?;
    miss(world, name).await
}

/// Waits until there are jobs as expected, sorted by their creation.
async fn until_jobs(
    world: &World,
    what: &str,
    holds: impl Fn(&[Value]) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let jobs = |answer: &crate::Answer| answer.body["items"].as_array().cloned().unwrap_or_default();
    let answer = world.eventually(&JOBS.path(world, ""), what, |answer| holds(&jobs(answer))).await?;
    Ok(jobs(&answer))
}

async fn until_one(world: &World, except: Option<&str>) -> anyhow::Result<Value> {
    let is_it = |job: &Value| except != Some(name_of(job));
    let jobs = until_jobs(world, "a job", |jobs| jobs.iter().any(is_it)).await?;
    jobs.into_iter().find(is_it).context("no such job")
}

async fn missed(world: World) -> anyhow::Result<()> {
    let cron = create(&world, "cron", ending_template("cron", 0), json!({})).await?;
    miss(&world, "cron").await?;
    let job = until_one(&world, None).await?;
    // An hour may begin while this runs.
    let due = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str();
    let due: Timestamp = due.context("no scheduled time")?.parse()?;
    let age = Clock::system().now().duration_since(due);
    ensure!(due.as_second() % 3600 == 0 && age < SignedDuration::from_mins(61), "due at {due}");
    ensure!(name_of(&job) == format!("cron-{}", due.as_second() / 60), "{job}");
    ensure!(is_owned_by(&job, &cron) && job["metadata"]["labels"]["of"] == "cron", "{job}");
    let done = |cron: &Value| {
        cron["status"]["lastScheduleTime"] == due.to_string()
            && cron["status"]["lastSuccessfulTime"].is_string()
            && cron["status"]["active"].is_null()
    };
    CRON_JOBS.until(&world, "cron", "the end of the job", done).await?;
    let name = name_of(&job);
    until_event(&world, "cron", "SuccessfulCreate", &format!("Created job {name}")).await?;
    let message = format!("Saw completed job: {name}, condition: Complete");
    until_event(&world, "cron", "SawCompletedJob", &message).await?;
    ensure!(JOBS.list(&world).await?.len() == 1, "several jobs for one time");
    Ok(())
}

async fn forbid(world: World) -> anyhow::Result<()> {
    create(&world, "cron", job_template("cron"), json!({ "concurrencyPolicy": "Forbid" })).await?;
    miss(&world, "cron").await?;
    until_one(&world, None).await?;
    let active = |cron: &Value| cron["status"]["active"].as_array().is_some_and(|active| active.len() == 1);
    CRON_JOBS.until(&world, "cron", "an active job", active).await?;
    miss_again(&world, "cron").await?;
    until_event(&world, "cron", "JobAlreadyActive", "Not starting job").await?;
    ensure!(JOBS.list(&world).await?.len() == 1, "a second job was started");
    Ok(())
}

async fn replace(world: World) -> anyhow::Result<()> {
    create(&world, "cron", job_template("cron"), json!({ "concurrencyPolicy": "Replace" })).await?;
    miss(&world, "cron").await?;
    let first = until_one(&world, None).await?;
    let active = |cron: &Value| cron["status"]["active"].as_array().is_some_and(|active| active.len() == 1);
    CRON_JOBS.until(&world, "cron", "an active job", active).await?;
    miss_again(&world, "cron").await?;
    until_one(&world, Some(name_of(&first))).await?;
    world.gone(&JOBS.path(&world, name_of(&first))).await
}

/// Start times have whole seconds, and the oldest job is found by them: waits for a later one.
async fn later_than(job: &Value) -> anyhow::Result<()> {
    let start: Timestamp = job["status"]["startTime"].as_str().context("no start time")?.parse()?;
    let wait = (start + SignedDuration::from_secs(1)).duration_since(Clock::system().now());
    tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
    Ok(())
}

async fn history(world: World) -> anyhow::Result<()> {
    create(&world, "cron", ending_template("cron", 0), json!({ "successfulJobsHistoryLimit": 1 })).await?;
    miss(&world, "cron").await?;
    let first = until_one(&world, None).await?;
    let first = JOBS.until(&world, name_of(&first), "completion", |job| is_true(job, "Complete")).await?;
    later_than(&first).await?;
    let idle =
        |cron: &Value| cron["status"]["active"].is_null() && cron["status"]["lastSuccessfulTime"].is_string();
    CRON_JOBS.until(&world, "cron", "no active job", idle).await?;
    miss_again(&world, "cron").await?;
    let second = until_one(&world, Some(name_of(&first))).await?;
    world.gone(&JOBS.path(&world, name_of(&first))).await?;
    JOBS.until(&world, name_of(&second), "completion", |job| is_true(job, "Complete")).await.map(drop)
}

async fn suspend(world: World) -> anyhow::Result<()> {
    create(&world, "suspended", ending_template("suspended", 0), json!({ "suspend": true })).await?;
    miss(&world, "suspended").await?;
    // Whatever the controller would do, it does for a later one that is not suspended.
    create(&world, "cron", ending_template("cron", 0), json!({})).await?;
    miss(&world, "cron").await?;
    let job = until_one(&world, None).await?;
    ensure!(job["metadata"]["labels"]["of"] == "cron", "{job}");
    CRON_JOBS.merge(&world, "suspended", &json!({ "spec": { "suspend": false } })).await?;
    let resumed = until_one(&world, Some(name_of(&job))).await?;
    ensure!(resumed["metadata"]["labels"]["of"] == "suspended", "{resumed}");
    Ok(())
}
