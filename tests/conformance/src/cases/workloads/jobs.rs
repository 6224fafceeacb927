//! Jobs: completion, retries, policies, suspension, clean-up.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::cases;
use super::{
    JOBS, condition, end, ending_template, expect_condition, is_ready, is_true, items, job_template, name_of,
    until_event, until_pods, until_ready,
};
use crate::World;

cases! { "workloads: Job":
    "a job runs until it has its completions, and counts every pod once" => completions,
    "every index of an indexed job completes once" => indexed,
    "a failed pod is replaced after a while" => retry,
    "a job fails beyond its backoff limit" => backoff_limit,
    "indexes fail on their own if each has a limit" => per_index,
    "too many failed indexes fail the job" => max_failed_indexes,
    "a pod failure policy fails the job by exit code" => fail_job,
    "a pod failure policy fails an index by exit code" => fail_index,
    "a pod failure policy ignores disruptions" => ignore,
    "a success policy ends the job when chosen indexes succeeded" => success_policy,
    "a suspended job has no pods, and they are no failures" => suspend,
    "a job that is made suspended starts when it is resumed" => made_suspended,
    "a job that is active for too long fails" => deadline,
    "more or fewer pods run when parallelism changes" => parallelism,
    "an indexed job can grow" => elastic,
    "a finished job is removed after its time to live" => ttl,
    "a job that is managed by another controller is left alone" => managed_by,
    "pods of a job stay if nothing else is said, and go in the background" => orphans,
}

async fn create(world: &World, name: &str, template: Value, more: Value) -> anyhow::Result<Value> {
    let mut spec = more;
    spec["template"] = template;
    JOBS.create(world, name, spec).await
}

async fn until_condition(world: &World, name: &str, kind: &str) -> anyhow::Result<Value> {
    JOBS.until(world, name, kind, |job| is_true(job, kind)).await
}

/// Waits until a pod of an index runs.
async fn until_index(world: &World, name: &str, index: &str) -> anyhow::Result<Value> {
    let pods = until_pods(world, name, &format!("a pod of index {index}"), |pods| {
        pods.iter().any(|pod| has_index(pod, index) && is_ready(pod))
    })
    .await?;
    pods.into_iter().find(|pod| has_index(pod, index) && is_ready(pod)).context("no such pod")
}

fn has_index(pod: &Value, index: &str) -> bool {
    pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == index
}

/// The end of a failed job: both conditions, for the same reason.
fn expect_failed(job: &Value, reason: &str, message: &str) -> anyhow::Result<()> {
    expect_condition(job, "FailureTarget", "True", reason, message)?;
    expect_condition(job, "Failed", "True", reason, message)?;
    ensure!(job["status"]["completionTime"].is_null(), "{job}");
    Ok(())
}

async fn completions(world: World) -> anyhow::Result<()> {
    let spec = json!({ "completions": 3, "parallelism": 2 });
    let made = create(&world, "job", ending_template("job", 0), spec).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    let (status, message) = (&job["status"], "Reached expected number of succeeded pods");
    for kind in ["SuccessCriteriaMet", "Complete"] {
        expect_condition(&job, kind, "True", "CompletionsReached", message)?;
    }
    ensure!(status["succeeded"] == 3 && status["failed"].is_null() && status["active"].is_null(), "{status}");
    ensure!(status["ready"] == 0 && status["terminating"] == 0, "{status}");
    ensure!(status["uncountedTerminatedPods"] == json!({}), "{status}");
    ensure!(status["startTime"].is_string() && status["completionTime"].is_string(), "{status}");
    let pods = until_pods(&world, "job", "pods without finalizers", |pods| {
        pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null())
    })
    .await?;
    ensure!(pods.len() == 3, "{} pods", pods.len());
    for pod in pods {
        let labels = &pod["metadata"]["labels"];
        ensure!(labels["batch.kubernetes.io/job-name"] == "job" && labels["job-name"] == "job", "{labels}");
        ensure!(labels["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"], "{labels}");
        until_event(&world, "job", "SuccessfulCreate", &format!("Created pod: {}", name_of(&pod))).await?;
    }
    until_event(&world, "job", "Completed", "Job completed").await
}

async fn indexed(world: World) -> anyhow::Result<()> {
    let spec = json!({ "completions": 4, "parallelism": 4, "completionMode": "Indexed" });
    create(&world, "job", job_template("job"), spec).await?;
    for index in ["0", "1", "3"] {
        let pod = until_index(&world, "job", index).await?;
        let (name, annotations) = (format!("job-{index}"), &pod["metadata"]["annotations"]);
        ensure!(pod["spec"]["hostname"] == name && name_of(&pod).starts_with(&format!("{name}-")), "{pod}");
        ensure!(annotations["batch.kubernetes.io/job-completion-index"] == index, "{annotations}");
        let environment = pod["spec"]["containers"][0]["env"].as_array();
        let told = environment.into_iter().flatten().any(|one| one["name"] == "JOB_COMPLETION_INDEX");
        ensure!(told, "{pod}");
        end(&world, &pod, 0).await?;
    }
    let three = |job: &Value| job["status"]["completedIndexes"] == "0,1,3";
    let job = JOBS.until(&world, "job", "three indexes", three).await?;
    ensure!(job["status"]["succeeded"] == 3, "{job}");
    end(&world, &until_index(&world, "job", "2").await?, 0).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    ensure!(job["status"]["completedIndexes"] == "0-3", "{job}");
    Ok(())
}

async fn retry(world: World) -> anyhow::Result<()> {
    create(&world, "job", job_template("job"), json!({ "backoffLimit": 1 })).await?;
    let first = until_ready(&world, "job", 1).await?.remove(0);
    end(&world, &first, 7).await?;
    let failed = |job: &Value| job["status"]["failed"] == 1;
    JOBS.until(&world, "job", "a failure", failed).await?;
    let is_second = |pod: &Value| name_of(pod) != name_of(&first) && is_ready(pod);
    let pods = until_pods(&world, "job", "a second pod", |pods| pods.iter().any(is_second)).await?;
    let second = pods.iter().find(|pod| is_second(pod)).context("no second pod")?;
    end(&world, second, 0).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    ensure!(job["status"]["failed"] == 1 && job["status"]["succeeded"] == 1, "{job}");
    Ok(())
}

async fn backoff_limit(world: World) -> anyhow::Result<()> {
    create(&world, "job", ending_template("job", 1), json!({ "backoffLimit": 0 })).await?;
    let job = until_condition(&world, "job", "Failed").await?;
    expect_failed(&job, "BackoffLimitExceeded", "Job has reached the specified backoff limit")?;
    ensure!(job["status"]["failed"] == 1, "{job}");
    until_event(&world, "job", "BackoffLimitExceeded", "Job has reached the specified backoff limit").await
}

async fn per_index(world: World) -> anyhow::Result<()> {
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
    });
    create(&world, "job", job_template("job"), spec).await?;
    for (index, code) in [("0", 0), ("1", 1), ("2", 0)] {
        end(&world, &until_index(&world, "job", index).await?, code).await?;
    }
    let job = until_condition(&world, "job", "Failed").await?;
    expect_failed(&job, "FailedIndexes", "Job has failed indexes")?;
    let status = &job["status"];
    ensure!(status["failedIndexes"] == "1" && status["completedIndexes"] == "0,2", "{status}");
    ensure!(job["spec"]["backoffLimit"] == i32::MAX, "{job}");
    Ok(())
}

async fn max_failed_indexes(world: World) -> anyhow::Result<()> {
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "backoffLimitPerIndex": 0, "maxFailedIndexes": 0,
    });
    create(&world, "job", job_template("job"), spec).await?;
    end(&world, &until_index(&world, "job", "2").await?, 1).await?;
    let job = until_condition(&world, "job", "Failed").await?;
    let message = "Job has exceeded the specified maximal number of failed indexes";
    expect_failed(&job, "MaxFailedIndexesExceeded", message)
}

/// A rule for exit code 42.
fn on_exit_code(action: &str) -> Value {
    json!({ "action": action, "onExitCodes": { "operator": "In", "values": [42] } })
}

async fn fail_job(world: World) -> anyhow::Result<()> {
    let spec = json!({ "backoffLimit": 6, "podFailurePolicy": { "rules": [on_exit_code("FailJob")] } });
    let made = create(&world, "job", job_template("job"), spec).await?;
    ensure!(made["spec"]["podReplacementPolicy"] == "Failed", "{made}");
    let pod = until_ready(&world, "job", 1).await?.remove(0);
    end(&world, &pod, 42).await?;
    let job = until_condition(&world, "job", "Failed").await?;
    let message = format!(
        "Container main for pod {}/{} failed with exit code 42 matching FailJob rule at index 0",
        world.namespace,
        name_of(&pod)
    );
    expect_failed(&job, "PodFailurePolicy", &message)
}

async fn fail_index(world: World) -> anyhow::Result<()> {
    let spec = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 6,
        "podFailurePolicy": { "rules": [on_exit_code("FailIndex")] },
    });
    create(&world, "job", job_template("job"), spec).await?;
    end(&world, &until_index(&world, "job", "0").await?, 42).await?;
    end(&world, &until_index(&world, "job", "1").await?, 0).await?;
    let job = until_condition(&world, "job", "Failed").await?;
    ensure!(job["status"]["failedIndexes"] == "0" && job["status"]["failed"] == 1, "{job}");
    expect_failed(&job, "FailedIndexes", "Job has failed indexes")
}

async fn ignore(world: World) -> anyhow::Result<()> {
    let rule =
        json!({ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] });
    let spec = json!({ "backoffLimit": 0, "podFailurePolicy": { "rules": [rule] } });
    create(&world, "job", job_template("job"), spec).await?;
    let first = until_ready(&world, "job", 1).await?.remove(0);
    super::disruption::evict(&world, name_of(&first)).await?.expect(201)?;
    let is_second = |pod: &Value| name_of(pod) != name_of(&first) && is_ready(pod);
    let pods = until_pods(&world, "job", "a second pod", |pods| pods.iter().any(is_second)).await?;
    let second = pods.iter().find(|pod| is_second(pod)).context("no second pod")?;
    end(&world, second, 0).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    ensure!(job["status"]["failed"].is_null() && job["status"]["succeeded"] == 1, "{job}");
    Ok(())
}

async fn success_policy(world: World) -> anyhow::Result<()> {
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": { "rules": [{ "succeededIndexes": "1" }] },
    });
    create(&world, "job", job_template("job"), spec).await?;
    until_ready(&world, "job", 3).await?;
    end(&world, &until_index(&world, "job", "1").await?, 0).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    for kind in ["SuccessCriteriaMet", "Complete"] {
        expect_condition(&job, kind, "True", "SuccessPolicy", "Matched rules at index 0")?;
    }
    ensure!(job["status"]["succeeded"] == 1 && job["status"]["completedIndexes"] == "1", "{job}");
    ensure!(job["status"]["active"].is_null() && job["status"]["terminating"] == 0, "{job}");
    Ok(())
}

async fn suspend(world: World) -> anyhow::Result<()> {
    create(
        &world,
        "job",
        job_template("job"),
        json!({ "parallelism": 2, "completions": 2, "backoffLimit": 0 }),
    )
    .await?;
    until_ready(&world, "job", 2).await?;
    let ready = |job: &Value| job["status"]["active"] == 2 && job["status"]["ready"] == 2;
    JOBS.until(&world, "job", "two active pods", ready).await?;
    JOBS.merge(&world, "job", &json!({ "spec": { "suspend": true } })).await?;
    let job = until_condition(&world, "job", "Suspended").await?;
    expect_condition(&job, "Suspended", "True", "JobSuspended", "Job suspended")?;
    let none = |job: &Value| job["status"]["active"].is_null() && job["status"]["startTime"].is_null();
    let job = JOBS.until(&world, "job", "no active pod", none).await?;
    ensure!(job["status"]["failed"].is_null(), "{job}");
    until_pods(&world, "job", "no pods", <[Value]>::is_empty).await?;
    JOBS.merge(&world, "job", &json!({ "spec": { "suspend": false } })).await?;
    for pod in until_ready(&world, "job", 2).await? {
        end(&world, &pod, 0).await?;
    }
    let job = until_condition(&world, "job", "Complete").await?;
    expect_condition(&job, "Suspended", "False", "JobResumed", "Job resumed")?;
    until_event(&world, "job", "Suspended", "Job suspended").await?;
    until_event(&world, "job", "Resumed", "Job resumed").await
}

async fn made_suspended(world: World) -> anyhow::Result<()> {
    create(&world, "job", ending_template("job", 0), json!({ "suspend": true })).await?;
    let job = until_condition(&world, "job", "Suspended").await?;
    ensure!(job["status"]["startTime"].is_null(), "{job}");
    let place = json!({ "spec": { "template": { "metadata": { "annotations": { "place": "here" } } } } });
    JOBS.merge(&world, "job", &place).await.context("the template of a suspended job can be changed")?;
    ensure!(items(&world, &world.core("pods")).await?.is_empty(), "a suspended job has pods");
    JOBS.merge(&world, "job", &json!({ "spec": { "suspend": false } })).await?;
    let job = until_condition(&world, "job", "Complete").await?;
    ensure!(job["status"]["startTime"].is_string(), "{job}");
    let pods = items(&world, &world.core("pods")).await?;
    ensure!(pods.len() == 1 && pods[0]["metadata"]["annotations"]["place"] == "here", "{pods:?}");
    Ok(())
}

async fn deadline(world: World) -> anyhow::Result<()> {
    create(&world, "job", job_template("job"), json!({ "activeDeadlineSeconds": 1 })).await?;
    let job = until_condition(&world, "job", "Failed").await?;
    expect_failed(&job, "DeadlineExceeded", "Job was active longer than specified deadline")?;
    until_pods(&world, "job", "the end of its pods", <[Value]>::is_empty).await.map(drop)
}

async fn parallelism(world: World) -> anyhow::Result<()> {
    create(
        &world,
        "job",
        job_template("job"),
        json!({ "parallelism": 1, "completions": 3, "backoffLimit": 0 }),
    )
    .await?;
    until_ready(&world, "job", 1).await?;
    JOBS.merge(&world, "job", &json!({ "spec": { "parallelism": 3 } })).await?;
    until_ready(&world, "job", 3).await?;
    JOBS.merge(&world, "job", &json!({ "spec": { "parallelism": 1 } })).await?;
    until_ready(&world, "job", 1).await?;
    let counted = |job: &Value| job["status"]["active"] == 1 && job["status"]["terminating"] == 0;
    let job = JOBS.until(&world, "job", "one active pod", counted).await?;
    ensure!(condition(&job, "Failed").is_null() && job["status"]["failed"].is_null(), "{job}");
    Ok(())
}

async fn elastic(world: World) -> anyhow::Result<()> {
    let spec = json!({ "completions": 1, "parallelism": 1, "completionMode": "Indexed" });
    create(&world, "job", job_template("job"), spec).await?;
    until_ready(&world, "job", 1).await?;
    JOBS.merge(&world, "job", &json!({ "spec": { "completions": 2, "parallelism": 2 } })).await?;
    for index in ["0", "1"] {
        end(&world, &until_index(&world, "job", index).await?, 0).await?;
    }
    let job = until_condition(&world, "job", "Complete").await?;
    ensure!(job["status"]["completedIndexes"] == "0,1", "{job}");
    Ok(())
}

async fn ttl(world: World) -> anyhow::Result<()> {
    create(&world, "job", ending_template("job", 0), json!({ "ttlSecondsAfterFinished": 1 })).await?;
    world.gone(&JOBS.path(&world, "job")).await?;
    until_pods(&world, "job", "the end of its pods", <[Value]>::is_empty).await.map(drop)
}

async fn managed_by(world: World) -> anyhow::Result<()> {
    create(&world, "other", ending_template("other", 0), json!({ "managedBy": "example.com/other" })).await?;
    // Whatever the controller would do, it does for a later job of its own.
    create(&world, "own", ending_template("own", 0), json!({ "managedBy": "kubernetes.io/job-controller" }))
        .await?;
    until_condition(&world, "own", "Complete").await?;
    let other = world.get(&JOBS.path(&world, "other")).await?.expect(200)?;
    ensure!(other["status"] == json!({}), "{}", other["status"]);
    ensure!(super::pods(&world, "other").await?.is_empty(), "the job has pods");
    let patch = json!({ "spec": { "managedBy": null } });
    let answer = world.patch(&JOBS.path(&world, "other"), "merge-patch+json", &patch).await?;
    answer.expect_status(422, "Invalid", "field is immutable").map(drop)
}

async fn orphans(world: World) -> anyhow::Result<()> {
    for name in ["kept", "removed"] {
        create(&world, name, ending_template(name, 0), json!({})).await?;
        until_condition(&world, name, "Complete").await?;
    }
    world.delete(&JOBS.path(&world, "kept"), None).await?.expect(200)?;
    JOBS.delete(&world, "removed", "Background").await?;
    until_pods(&world, "removed", "garbage collection", <[Value]>::is_empty).await?;
    world.gone(&JOBS.path(&world, "kept")).await?;
    let pods = super::pods(&world, "kept").await?;
    ensure!(pods.len() == 1 && pods[0]["metadata"]["ownerReferences"].is_null(), "{pods:?}");
    Ok(())
}
