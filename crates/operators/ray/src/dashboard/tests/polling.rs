use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use quintet_controller::{ObjectKey, clock::Clock};

use super::{
    super::simulated::{Faults, Life, SimulatedDashboard},
    *,
};

fn poll(id: &str) -> JobPoll {
    JobPoll { at: address("ray", None), id: id.to_owned() }
}

struct Setting {
    poller: Poller<JobPoll>,
    ray: Arc<SimulatedDashboard>,
    clock: Clock,
    woken: Arc<Mutex<VecDeque<ObjectKey>>>,
}

impl Setting {
    fn new() -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        Self {
            poller: Poller::new(Duration::from_secs(3), Some(1)),
            ray: Arc::new(SimulatedDashboard::new(clock.clone(), 1)),
            clock,
            woken: Arc::default(),
        }
    }

    /// Lets the poller work for some simulated time.
    /// Polls two thousand dashboards that do not respond, until each was polled once.
    async fn wait_for_the_dead(&self) {
        for number in 0..2000 {
            let name = format!("dead-{number}");
            let at = address("dead", None);
            self.poller.watch(&ObjectKey::new("ns", &name), &[JobPoll { at, id: name.clone() }]);
        }
        self.ray.set_silent("dead");
        self.pass(300).await;
    }

    async fn pass(&self, seconds: u64) {
        let woken = Arc::clone(&self.woken);
        let work = self.poller.run(&*self.ray, &self.clock, move |root| woken.lock().push_back(root));
        let _ = tokio::time::timeout(Duration::from_secs(seconds), work).await;
    }

    fn root() -> ObjectKey {
        ObjectKey::new("ns", "train")
    }

    fn known(&self, id: &str) -> Option<Observation<Option<JobInfo>>> {
        self.poller.watch(&Self::root(), &[poll(id)]).pop().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_remembered_and_changes_wake() {
    let setting = Setting::new();
    assert_eq!(setting.known("a"), None, "nothing is known at first, and nobody waits for it");
    setting.pass(2).await;
    assert_eq!(setting.known("a").unwrap().response, Ok(None));
    assert_eq!(setting.woken.lock().len(), 1);
    setting.pass(20).await;
    assert_eq!(setting.woken.lock().len(), 1, "the same response triggers no reconcile");
    let pending = Duration::from_secs(10);
    setting.ray.set_life(Life { pending, ..Life::default() });
    setting.ray.submit_by_hand("ray", "a");
    setting.pass(60).await;
    let Ok(Some(info)) = setting.known("a").unwrap().response else { panic!("no response") };
    assert_eq!(info.status, JobStatus::Succeeded);
    assert_eq!(setting.woken.lock().len(), 4, "pending, running, succeeded");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_watches_is_not_asked() {
    let setting = Setting::new();
    setting.known("a");
    setting.known("b");
    assert_eq!(setting.poller.len(), 1, "a poll that was replaced is forgotten");
    setting.poller.forget(&Setting::root());
    setting.pass(10).await;
    assert!(setting.poller.is_empty() && setting.woken.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_our_own_deed_is_thrown_away() {
    let setting = Setting::new();
    setting.known("a");
    setting.pass(2).await;
    assert!(setting.known("a").is_some());
    setting.poller.poll_again(&Setting::root());
    assert_eq!(setting.known("a"), None);
    setting.pass(1).await;
    assert!(setting.known("a").is_some(), "it is asked at once");
}

#[tokio::test(start_paused = true)]
async fn trouble_wakes_once_and_is_asked_less_often() {
    let setting = Setting::new();
    setting.ray.set_down("ray", true);
    setting.known("a");
    setting.pass(300).await;
    assert!(setting.known("a").unwrap().response.is_err());
    assert_eq!(setting.woken.lock().len(), 1);
    setting.ray.set_down("ray", false);
    setting.pass(31).await;
    assert!(setting.known("a").unwrap().response.is_ok(), "it is heard of within half a minute");
}

#[tokio::test(start_paused = true)]
async fn many_slow_dashboards_are_all_asked_in_turn() {
    let setting = Setting::new();
    setting.ray.set_faults(Faults { silent: 100, ..Faults::default() });
    for number in 0..500 {
        setting.poller.watch(&ObjectKey::new("ns", &number.to_string()), &[poll(&number.to_string())]);
    }
    // Thirty-two at a time, two seconds and a bit each.
    setting.pass(60).await;
    assert_eq!(setting.woken.lock().len(), 500);
}

#[tokio::test(start_paused = true)]
async fn dashboards_that_do_not_answer_hold_the_others_up_no_longer_than_once() {
    let setting = Setting::new();
    setting.wait_for_the_dead().await;
    setting.known("a");
    setting.pass(1).await;
    assert!(setting.known("a").is_some(), "half of the places are for those who response");
}

#[tokio::test(start_paused = true)]
async fn orders_that_change_nothing_are_given_less_and_less_often() {
    let setting = Setting::new();
    let start = tokio::time::Instant::now();
    let mut orders = 0;
    // A controller that gives its order whenever it hears that nothing came of the last one.
    while start.elapsed() < Duration::from_mins(2) {
        if setting.known("a").is_some() {
            orders += 1;
            setting.poller.poll_again(&Setting::root());
        }
        setting.pass(1).await;
    }
    assert!((5..15).contains(&orders), "{orders} orders in two minutes");
    setting.ray.submit_by_hand("ray", "a");
    setting.pass(60).await;
    setting.poller.poll_again(&Setting::root());
    setting.pass(1).await;
    assert!(setting.known("a").is_some(), "once something has come of it, it is asked at once again");
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_an_event_elsewhere_is_asked_for_again_and_wakes_though_it_is_the_same() {
    let setting = Setting::new();
    let since = |event| {
        let root = Setting::root();
        setting.poller.watch_since(&root, &[poll("a")], Some(event)).pop().unwrap()
    };
    setting.known("a");
    setting.pass(2).await;
    assert_eq!(setting.woken.lock().len(), 1);
    for (case, hours) in [("the time is ours", 0), ("it is that of a clock which is ahead", 5)] {
        let before = setting.woken.lock().len();
        let ahead = jiff::SignedDuration::from_hours(hours);
        let event = setting.clock.now().checked_add(ahead).unwrap();
        assert_eq!(since(event), None, "{case}");
        setting.pass(1).await;
        assert!(since(event).is_some(), "{case}");
        assert_eq!(setting.woken.lock().len(), before + 1, "{case}");
        setting.pass(20).await;
        assert!(since(event).is_some(), "{case}");
        assert_eq!(setting.woken.lock().len(), before + 1, "once: {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_event_elsewhere_silence_is_not_taken_for_an_answer() {
    let setting = Setting::new();
    setting.ray.set_down("ray", true);
    setting.known("a");
    setting.pass(300).await;
    let event = setting.clock.now();
    setting.poller.watch_since(&Setting::root(), &[poll("a")], Some(event));
    setting.pass(20).await;
    setting.ray.set_down("ray", false);
    setting.pass(5).await;
    let known = setting.poller.watch_since(&Setting::root(), &[poll("a")], Some(event)).pop().unwrap();
    assert!(known.unwrap().response.is_ok(), "it is polled every few seconds while a request is pending");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_waits_for_does_not_queue_behind_dashboards_that_do_not_answer() {
    let setting = Setting::new();
    setting.wait_for_the_dead().await;
    setting.ray.set_down("ray", true);
    let event = setting.clock.now();
    let known = || setting.poller.watch_since(&Setting::root(), &[poll("a")], Some(event)).pop().unwrap();
    assert_eq!(known(), None);
    setting.pass(1).await;
    assert!(known().unwrap().response.is_err(), "it was asked in vain");
    setting.ray.set_down("ray", false);
    setting.pass(5).await;
    assert!(known().unwrap().response.is_ok(), "and again a period later");
}
