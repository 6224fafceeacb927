#![expect(clippy::disallowed_methods, reason = "tasks of a test end with the test")]

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Job, LaneId, Outcome, Reason, WorkQueue};

const CHANGED: Reason = Reason::Changed("Thing");

type Queue = WorkQueue<String>;

fn queue(lanes: &[(&'static str, usize)]) -> (Queue, Vec<LaneId>) {
    let queue = Queue::new();
    let lanes = lanes.iter().map(|(name, workers)| queue.add_lane(name, *workers, ())).collect::<Vec<_>>();
    for lane in &lanes {
        queue.open(*lane);
    }
    (queue, lanes)
}

fn key(name: &str) -> String {
    name.to_owned()
}

fn retry(milliseconds: u64) -> Outcome {
    let after = Duration::from_millis(milliseconds);
    Outcome::Retry { after, after_change: after }
}

async fn take(queue: &Queue) -> Job<String> {
    queue.next().await.unwrap()
}

/// Whether no key is ready now.
async fn is_still(queue: &Queue) -> bool {
    futures::poll!(std::pin::pin!(queue.next())).is_pending()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_queued_once_however_often_it_is_added() {
    let (queue, lanes) = queue(&[("a", 4)]);
    for _ in 0..3 {
        queue.add(lanes[0], key("x"), CHANGED);
    }
    let job = take(&queue).await;
    assert_eq!((job.key.as_str(), job.reason), ("x", CHANGED));
    assert!(is_still(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_runs_runs_once_more() {
    let (queue, lanes) = queue(&[("a", 4)]);
    queue.add(lanes[0], key("x"), CHANGED);
    let job = take(&queue).await;
    queue.add(lanes[0], key("x"), CHANGED);
    queue.add(lanes[0], key("x"), CHANGED);
    assert!(is_still(&queue).await, "never twice at the same time");
    queue.finish(job, Outcome::Done);
    let job = take(&queue).await;
    queue.finish(job, Outcome::Done);
    assert!(is_still(&queue).await);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn real_changes_go_first_but_do_not_starve_the_rest() {
    let (queue, lanes) = queue(&[("a", 100)]);
    for number in 0..20 {
        queue.add(lanes[0], key(&format!("old-{number}")), Reason::Start);
    }
    for number in 0..20 {
        queue.add(lanes[0], key(&format!("new-{number}")), CHANGED);
    }
    let mut order = Vec::new();
    for _ in 0..16 {
        order.push(take(&queue).await.reason == CHANGED);
    }
    assert_eq!(order.iter().filter(|change| !**change).count(), 2, "{order:?}");
    assert!(order[..7].iter().all(|change| *change), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_raises_the_priority_of_a_key() {
    let (queue, lanes) = queue(&[("a", 4)]);
    queue.add(lanes[0], key("x"), Reason::Start);
    queue.add(lanes[0], key("y"), Reason::Start);
    queue.add(lanes[0], key("y"), CHANGED);
    assert_eq!(take(&queue).await.key, key("y"));
    assert_eq!(take(&queue).await.key, key("x"));
    assert!(is_still(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn lanes_alternate_and_keep_to_their_workers() {
    let (queue, lanes) = queue(&[("busy", 2), ("quiet", 2)]);
    for number in 0..10 {
        queue.add(lanes[0], key(&number.to_string()), CHANGED);
    }
    queue.add(lanes[1], key("x"), CHANGED);
    let first = take(&queue).await;
    let second = take(&queue).await;
    assert_ne!(first.lane, second.lane, "the quiet one does not wait for the busy one's backlog");
    let third = take(&queue).await;
    assert_eq!(third.lane, lanes[0]);
    assert!(is_still(&queue).await, "the busy one has its two already");
    queue.finish(first, Outcome::Done);
    assert_eq!(take(&queue).await.lane, lanes[0]);
}

#[tokio::test(start_paused = true)]
async fn a_change_ends_a_delay_and_a_resync_does_not() {
    let (queue, lanes) = queue(&[("a", 4)]);
    queue.add(lanes[0], key("x"), CHANGED);
    let job = take(&queue).await;
    queue.finish(job, Outcome::After(Duration::from_mins(1)));
    queue.add(lanes[0], key("x"), Reason::Resync);
    assert!(is_still(&queue).await);
    queue.add(lanes[0], key("x"), CHANGED);
    let job = take(&queue).await;
    queue.finish(job, Outcome::Done);
    tokio::time::advance(Duration::from_mins(2)).await;
    assert!(is_still(&queue).await, "the old timer is void");
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_when_it_is_due() {
    let (queue, lanes) = queue(&[("a", 4)]);
    queue.add(lanes[0], key("x"), CHANGED);
    let job = take(&queue).await;
    queue.finish(job, Outcome::After(Duration::from_mins(1)));
    let started = Instant::now();
    assert_eq!(take(&queue).await.reason, Reason::Timer);
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn timers_that_are_due_together_wake_as_many_as_there_are() {
    let (queue, lanes) = queue(&[("a", 4)]);
    let mut waiting: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { take(&queue).await })
        })
        .collect();
    tokio::task::yield_now().await;
    for name in ["x", "y"] {
        queue.add(lanes[0], key(name), CHANGED);
    }
    for _ in 0..2 {
        let (job, _, others) = futures::future::select_all(waiting).await;
        waiting = others;
        queue.finish(job.unwrap(), Outcome::After(Duration::from_mins(1)));
    }
    let started = Instant::now();
    for job in futures::future::join_all(waiting).await {
        assert_eq!(job.unwrap().reason, Reason::Timer);
    }
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_lane_hands_out_nothing_before_it_is_opened() {
    let queue = Queue::new();
    let lane = queue.add_lane("a", 1, ());
    queue.add(lane, key("x"), CHANGED);
    assert!(is_still(&queue).await);
    let waiting = queue.clone();
    let taken = tokio::spawn(async move { waiting.next().await });
    tokio::task::yield_now().await;
    queue.open(lane);
    assert_eq!(taken.await.unwrap().unwrap().key, key("x"));
}

#[tokio::test(start_paused = true)]
async fn closing_wakes_all_workers() {
    let (queue, _) = queue(&[("a", 4)]);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.close();
    for waiting in waiting {
        assert!(waiting.await.unwrap());
    }
}

/// Many adders, workers and outcomes at once: every key that was added runs afterwards, and
/// never twice at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_and_nothing_runs_twice_at_once() {
    use parking_lot::Mutex;
    use std::collections::{HashMap, HashSet};
    let (queue, lanes) = queue(&[("a", 8), ("b", 8)]);
    let running = Arc::new(Mutex::new(HashSet::new()));
    let wanted = Arc::new(Mutex::new(HashMap::<(LaneId, String), u32>::new()));
    let seen = Arc::new(Mutex::new(HashMap::<(LaneId, String), u32>::new()));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let (queue, running, wanted, seen) =
            (queue.clone(), Arc::clone(&running), Arc::clone(&wanted), Arc::clone(&seen));
        workers.push(tokio::spawn(async move {
            while let Some(job) = queue.next().await {
                let id = (job.lane, job.key.clone());
                assert!(running.lock().insert(id.clone()));
                let now = wanted.lock()[&id];
                tokio::task::yield_now().await;
                seen.lock().insert(id.clone(), now);
                running.lock().remove(&id);
                let outcome = match now % 3 {
                    0 => retry(5),
                    _ => Outcome::Done,
                };
                queue.finish(job, outcome);
            }
        }));
    }
    for round in 1..200_u32 {
        for number in 0..20 {
            let id = (lanes[number % 2], key(&number.to_string()));
            wanted.lock().insert(id.clone(), if round == 199 { 1000 } else { round });
            queue.add(id.0, id.1, CHANGED);
        }
        tokio::task::yield_now().await;
    }
    // A failed run is retried, so in the end every key has seen the last round.
    while seen.lock().values().filter(|seen| **seen == 1000).count() < 20 {
        tokio::task::yield_now().await;
    }
    queue.close();
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_has_at_most_one_timer() {
    let (queue, lanes) = queue(&[("a", 1)]);
    for _ in 0..1000 {
        queue.add(lanes[0], key("x"), CHANGED);
        let job = take(&queue).await;
        queue.finish(job, Outcome::After(Duration::from_hours(24)));
    }
    assert_eq!(queue.report()[0].waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_runs_once_at_the_earliest_time_asked_for() {
    let (queue, lanes) = queue(&[("a", 1)]);
    for seconds in [60, 30, 90] {
        queue.add_after(lanes[0], key("x"), Duration::from_secs(seconds));
    }
    let started = Instant::now();
    let job = take(&queue).await;
    assert_eq!((job.reason, started.elapsed().as_secs()), (Reason::Timer, 30));
    queue.finish(job, Outcome::Done);
    tokio::time::advance(Duration::from_mins(2)).await;
    assert!(is_still(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_by_the_run_itself_begins_when_it_ends() {
    let (queue, lanes) = queue(&[("a", 1)]);
    queue.add(lanes[0], key("x"), CHANGED);
    let job = take(&queue).await;
    queue.add_after(lanes[0], key("x"), Duration::from_secs(30));
    queue.finish(job, Outcome::Done);
    let started = Instant::now();
    take(&queue).await;
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_its_backoff_and_counts_failures() {
    let (queue, lanes) = queue(&[("a", 1)]);
    queue.add(lanes[0], key("x"), CHANGED);
    for failures in 0..3 {
        let job = take(&queue).await;
        assert_eq!(job.failures, failures);
        queue.add(lanes[0], key("x"), CHANGED);
        queue.finish(
            job,
            Outcome::Retry { after: Duration::from_mins(1), after_change: Duration::from_secs(5) },
        );
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            assert!(is_still(&queue).await, "a change during the failed run does not end the backoff");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
    let job = take(&queue).await;
    queue.finish(job, Outcome::Done);
    queue.add(lanes[0], key("x"), CHANGED);
    assert_eq!(take(&queue).await.failures, 0, "success resets the count");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_released_its_slot_still_runs_alone() {
    let (queue, lanes) = queue(&[("a", 1)]);
    queue.add(lanes[0], key("x"), CHANGED);
    queue.add(lanes[0], key("y"), CHANGED);
    let slow = take(&queue).await;
    assert!(is_still(&queue).await, "the only worker is taken");
    queue.release_slot(&slow);
    queue.release_slot(&slow);
    let other = take(&queue).await;
    assert_eq!(other.key, "y");
    queue.add(lanes[0], key("x"), CHANGED);
    queue.finish(other, Outcome::Done);
    assert!(is_still(&queue).await, "never twice at the same time");
    assert_eq!(queue.report()[0].running, 1);
    queue.finish(slow, Outcome::Done);
    let job = take(&queue).await;
    queue.finish(job, Outcome::Done);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_decision_does_not_cut_a_backoff_short() {
    let (queue, lanes) = queue(&[("a", 1)]);
    queue.add(lanes[0], key("x"), Reason::Decision);
    let job = take(&queue).await;
    queue.finish(job, retry(1000));
    queue.add(lanes[0], key("x"), Reason::Decision);
    assert!(is_still(&queue).await);
}
