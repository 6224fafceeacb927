use std::time::Duration;

use tokio::time::Instant;

use super::{Failure, Job, LaneId, Outcome, Queue, Reason};
use crate::{
    error::Class,
    metrics::{Metrics, MetricsRegistry},
    object::ObjectKey,
};

const CHANGED: Reason = Reason::Changed("Thing");

fn failure(class: Class) -> Outcome {
    Outcome::Failed(Failure::of(class))
}

fn queue() -> (Queue, LaneId) {
    let queue = Queue::new(Metrics::register(&MetricsRegistry::new()), Some(1));
    let lane = queue.add_lane("a", 1);
    queue.open(lane);
    (queue, lane)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("n", name)
}

async fn take(queue: &Queue) -> Job {
    queue.next().await.unwrap()
}

/// Whether no object is ready now.
async fn is_still(queue: &Queue) -> bool {
    futures::poll!(std::pin::pin!(queue.next())).is_pending()
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_further_and_success_forgets_them() {
    let (queue, lane) = queue();
    queue.add(lane, key("x"), CHANGED);
    let mut nominal = Duration::from_millis(100);
    for failures in 0..6 {
        let started = Instant::now();
        let job = take(&queue).await;
        if failures > 0 {
            let waited = started.elapsed();
            assert!(waited >= nominal / 4 && waited <= nominal, "{failures}: {waited:?} of {nominal:?}");
            assert_eq!(job.reason, Reason::Retry);
        }
        assert_eq!(job.failures, failures);
        queue.finish(job, failure(Class::Transient));
        if failures > 0 {
            nominal *= 2;
        }
    }
    let job = take(&queue).await;
    queue.finish(job, Outcome::Done);
    queue.add(lane, key("x"), CHANGED);
    assert_eq!(take(&queue).await.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_the_server_is_honoured() {
    let (queue, lane) = queue();
    queue.add(lane, key("x"), CHANGED);
    let job = take(&queue).await;
    queue.finish(
        job,
        Outcome::Failed(Failure { asked: Some(Duration::from_secs(9)), ..Failure::of(Class::Throttled) }),
    );
    let started = Instant::now();
    take(&queue).await;
    assert!(started.elapsed() >= Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn changes_made_by_a_failed_reconcile_do_not_end_its_backoff() {
    let (queue, lane) = queue();
    queue.add(lane, key("x"), CHANGED);
    let job = take(&queue).await;
    queue.add(lane, key("x"), CHANGED);
    queue.finish(job, failure(Class::Invalid));
    assert!(is_still(&queue).await);
    let started = Instant::now();
    take(&queue).await;
    assert!(started.elapsed() >= Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn an_object_fixed_while_it_was_rejected_is_retried_soon() {
    let (queue, lane) = queue();
    queue.add(lane, key("x"), CHANGED);
    for _ in 0..12 {
        let job = take(&queue).await;
        queue.finish(job, failure(Class::Invalid));
    }
    let job = take(&queue).await;
    queue.add(lane, key("x"), CHANGED);
    let failed = Instant::now();
    queue.finish(job, failure(Class::Invalid));
    take(&queue).await;
    assert!(failed.elapsed() <= Duration::from_secs(5), "{:?}", failed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_is_kept_when_the_write_was_rejected() {
    let (queue, lane) = queue();
    queue.add(lane, key("x"), CHANGED);
    for _ in 0..12 {
        let job = take(&queue).await;
        queue.finish(job, failure(Class::Invalid));
    }
    let job = take(&queue).await;
    let start = Instant::now();
    let next = Some(Duration::from_secs(1));
    queue.finish(job, Outcome::Failed(Failure { next, ..Failure::of(Class::Invalid) }));
    take(&queue).await;
    assert_eq!(
        start.elapsed().as_secs(),
        30,
        "a plan that is rejected every time does not become a hot loop"
    );
}
