//! The whole platform as a user runs it: `quintet up` with real processes, real Ray, and `quintet down`.
//!
//! Cases run one after the other on one platform, because they share two things that a machine has once: its
//! processors, and the environment with Ray, which is made once. Arguments select cases by parts of their names, as those
//! of other tests do. Without root, and where Ray or MLflow cannot be installed, cases say that they were skipped and why.
//! Cases that take minutes run if `QUINTET_PLATFORM_SLOW` is set, as `make platform` does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![allow(clippy::print_stdout, reason = "a harness reports on standard output")]

mod bad_input;
mod clients;
mod codeflare;
mod crashes;
mod faults;
mod history;
mod mlflow;
mod multikueue;
mod pods;
mod queue;
mod ray;
mod registry;
mod rootless;
mod support;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use support::Platform;

/// A case of a test.
pub(crate) struct Case {
    name: &'static str,
    run: fn(&Platform) -> LocalBoxFuture<'_, ()>,
}

impl Case {
    /// What the case needs to be installed.
    fn needs(&self) -> Option<Needed> {
        match self.name.split("::").next() {
            Some("ray" | "crashes" | "history" | "rootless" | "multikueue") => Some(Needed::Ray),
            Some("queue") if self.name != "queue::a_job_waits_for_quota_until_another_ends" => {
                Some(Needed::Ray)
            }
            Some("mlflow") => Some(Needed::Mlflow),
            _ if self.name == "codeflare::the_sdk_runs_clusters_and_jobs" => Some(Needed::CodeFlareSdk),
            _ if self.name == "codeflare::a_ray_cluster_and_a_job_wait_for_quota_together" => {
                Some(Needed::Ray)
            }
            Some("registry") => Some(Needed::Registry),
            _ => None,
        }
    }

    /// Why the case is left out.
    fn omission(&self) -> Option<&'static str> {
        let is_slow = SLOW.contains(&self.name) && std::env::var_os("QUINTET_PLATFORM_SLOW").is_none();
        is_slow.then_some("it takes minutes; set QUINTET_PLATFORM_SLOW to run it")
    }
}

/// What some cases need to be installed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needed {
    Ray,
    Mlflow,
    Registry,
    CodeFlareSdk,
}

/// Cases that take minutes.
const SLOW: &[&str] = &[
    "clients::the_python_client_works_inside_and_outside_of_pods",
    "mlflow::a_server_with_postgresql_and_s3_keeps_runs_and_models",
    "mlflow::a_database_of_an_older_mlflow_is_migrated",
    "mlflow::an_image_of_another_version_is_reported_until_it_is_replaced",
    "mlflow::a_migration_that_the_database_refuses_is_retried",
    "mlflow::garbage_collection_deletes_what_users_have_deleted",
    "registry::a_registry_with_a_generated_database_serves_the_python_client",
    "codeflare::a_ray_cluster_and_a_job_wait_for_quota_together",
    "codeflare::the_sdk_runs_clusters_and_jobs",
    "history::a_job_is_read_back_from_a_directory",
    "history::a_job_is_read_back_from_s3",
    "queue::two_teams_share_ray_quota_and_the_owner_takes_it_back",
    "multikueue::jobs_of_a_platform_that_is_killed_finish_on_another",
];

/// Cases by the names of their functions.
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Case { name: concat!(stringify!($module), "::", stringify!($name)), run: |platform| Box::pin($module::$name(platform)) }),*]
    };
}

fn cases() -> Vec<Case> {
    cases![
        pods::a_pod_runs_and_its_log_can_be_read,
        clients::kubectl_follows_enters_and_reaches_pods,
        clients::the_python_client_works_inside_and_outside_of_pods,
        ray::a_cluster_of_head_and_worker_lists_both,
        ray::a_job_in_k8s_job_mode_gives_its_result,
        ray::a_job_in_http_mode_gives_its_result,
        ray::a_job_in_sidecar_mode_gives_its_result,
        ray::a_job_in_interactive_mode_is_submitted_by_rays_own_client,
        ray::quintets_own_submitter_works_with_real_ray,
        ray::rays_own_client_submits_follows_and_stops_jobs,
        ray::a_killed_worker_is_replaced_and_the_job_finishes,
        ray::a_job_outlives_a_killed_head_whose_state_is_in_redis,
        ray::a_suspended_cluster_has_no_pods_and_resumes,
        ray::a_cluster_with_tokens_refuses_requests_without_one,
        ray::the_autoscaler_adds_and_removes_workers,
        ray::a_service_answers_through_changes_and_upgrades,
        history::a_job_is_read_back_from_a_directory,
        history::a_job_is_read_back_from_s3,
        rootless::an_ordinary_user_runs_the_same_job,
        crashes::a_job_finishes_although_the_platform_is_killed,
        mlflow::a_server_keeps_runs_and_models_over_a_restart,
        mlflow::a_server_with_postgresql_and_s3_keeps_runs_and_models,
        mlflow::a_database_of_an_older_mlflow_is_migrated,
        mlflow::an_image_of_another_version_is_reported_until_it_is_replaced,
        mlflow::a_migration_that_the_database_refuses_is_retried,
        mlflow::garbage_collection_deletes_what_users_have_deleted,
        registry::a_registry_serves_the_python_client,
        registry::a_registry_with_a_generated_database_serves_the_python_client,
        queue::a_job_waits_for_quota_until_another_ends,
        queue::two_teams_share_ray_quota_and_the_owner_takes_it_back,
        queue::an_autoscaling_cluster_grows_as_far_as_there_is_quota,
        multikueue::jobs_of_a_platform_that_is_killed_finish_on_another,
        codeflare::wrapped_jobs_wait_for_quota_together,
        codeflare::a_ray_cluster_and_a_job_wait_for_quota_together,
        codeflare::the_sdk_runs_clusters_and_jobs,
        faults::pods_outlive_the_platform_and_are_found_again,
        bad_input::an_image_that_is_not_mapped,
        bad_input::a_command_that_does_not_exist,
        bad_input::a_volume_from_a_missing_config_map,
        bad_input::more_than_the_node_has,
        bad_input::probes_that_never_succeed,
        bad_input::a_node_port_that_is_taken,
        bad_input::an_api_port_that_is_taken,
        bad_input::a_data_directory_that_is_in_use,
        bad_input::a_full_disk,
    ]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_listing = arguments.iter().any(|argument| argument == "--list");
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen =
        |case: &Case| filters.is_empty() || filters.iter().any(|part| case.name.contains(part.as_str()));
    let chosen: Vec<Case> = cases().into_iter().filter(is_chosen).collect();
    if is_listing {
        for case in &chosen {
            println!("{}: test", case.name);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(reason) = support::obstacle() {
        println!("test platform ... skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let failed = runtime.block_on(run(&chosen));
    println!("\ntest result: {} passed; {} failed", chosen.len() - failed.len(), failed.len());
    for name in &failed {
        println!("  failed: {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why something cannot be installed here.
async fn obstacle(needed: Needed, platform: &Platform) -> Option<String> {
    let found = match needed {
        Needed::Ray => ray::obstacle(platform).await,
        Needed::Mlflow => mlflow::obstacle(platform).await,
        Needed::Registry => registry::obstacle(platform).await,
        Needed::CodeFlareSdk => platform.image_obstacle(codeflare::SDK_IMAGE).await,
    };
    platform.clean().await;
    found
}

/// Runs cases; returns the names of those that failed.
async fn run(cases: &[Case]) -> Vec<&'static str> {
    let mut failed = Vec::new();
    let platform = Platform::start().await;
    let mut obstacles: BTreeMap<Needed, Option<String>> = BTreeMap::new();
    for case in cases {
        if let Some(reason) = case.omission() {
            println!("test {} ... skipped: {reason}", case.name);
            continue;
        }
        if let Some(needed) = case.needs() {
            let obstacle = match obstacles.entry(needed) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(obstacle(needed, &platform).await),
            };
            if let Some(reason) = obstacle {
                println!("test {} ... skipped: what it needs cannot be installed: {reason}", case.name);
                continue;
            }
        }
        let began = Instant::now();
        let outcome = AssertUnwindSafe((case.run)(&platform)).catch_unwind().await;
        let result = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {} ... {result} ({:.1} s)", case.name, began.elapsed().as_secs_f32());
        if outcome.is_err() {
            failed.push(case.name);
            platform.describe();
        }
        platform.clean().await;
    }
    if std::panic::catch_unwind(AssertUnwindSafe(|| platform.down())).is_err() {
        failed.push("down leaves nothing");
    }
    failed
}
