//! Polls dashboards in the background, only about what is observed, and enqueues roots when a response changes.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use parking_lot::Mutex;
use quintet_controller::{
    ObjectKey, Runtime, backoff::Backoff, clock::Clock, controller::Trigger, rng::Rng, tasks::Tasks,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::Instant};

use super::{
    Dashboard, DashboardError, HttpDashboard, Route, SecretTokens,
    poll_schedule::{Item, LastPoll, PollSchedule},
};
use crate::Context;

/// Polls in flight at a time, over all clusters. A poll mostly waits.
const INFLIGHT: usize = 32;

/// Of those, polls that were not answered the last time: they mostly wait until they are given up.
const INFLIGHT_FAILING: usize = INFLIGHT / 2;

/// After the end of a submitter the next response decides, and so does its absence: KubeRay's rayjob_controller.go
/// gives Ray half a minute, and polls all the time.
const URGENT: Duration = Duration::from_secs(30);

/// A request to Ray that is repeated.
pub trait Poll: Clone + Eq + Hash + Send + Sync + 'static {
    /// What Ray says.
    type Response: Clone + PartialEq + Send + Sync + 'static;

    /// A dashboard that does not respond is polled less and less often, but at least this often.
    const LONGEST_WAIT: Duration = Duration::from_secs(30);

    /// Whether this is what one hopes to hear; otherwise it is asked less and less often.
    fn is_good(response: &Result<Self::Response, DashboardError>) -> bool {
        response.is_ok()
    }

    /// Asks once.
    fn ask(
        &self,
        dashboard: &dyn Dashboard,
    ) -> impl Future<Output = Result<Self::Response, DashboardError>> + Send;
}

/// What Ray said last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation<A> {
    /// When the poll was put: the response is about this time or later.
    pub at: Timestamp,
    /// Since when every poll of this process has been answered, or has failed, as this one.
    pub since: Timestamp,
    /// The response.
    pub response: Result<A, DashboardError>,
}

struct Watched<A> {
    observation: Option<Observation<A>>,
    /// What was known when the last order was given.
    before_request: Option<Result<A, DashboardError>>,
    /// The latest event elsewhere that made earlier responses worthless.
    event: Option<Timestamp>,
    /// Until then it is asked at the ordinary pace, though it fails: it is urgent.
    urgent_until: Option<Instant>,
    /// Consecutive requests that changed nothing.
    fruitless: u32,
    failures: u32,
    /// By which it stands on the schedule or is being asked; a response under an earlier one is about a state that is
    /// behind us.
    ticket: u64,
    polling: bool,
}

impl<A> Watched<A> {
    fn new(ticket: u64) -> Self {
        Self {
            observation: None,
            before_request: None,
            event: None,
            urgent_until: None,
            fruitless: 0,
            failures: 0,
            ticket,
            polling: false,
        }
    }
}

/// The polls of one root.
type Polls<Q> = HashMap<Q, Watched<<Q as Poll>::Response>>;

struct State<Q: Poll> {
    watched: HashMap<ObjectKey, Polls<Q>>,
    schedule: PollSchedule<Q>,
}

impl<Q: Poll> State<Q> {
    fn find(&mut self, root: &ObjectKey, poll: &Q) -> Option<&mut Watched<Q::Response>> {
        self.watched.get_mut(root)?.get_mut(poll)
    }
}

struct Inner<Q: Poll> {
    state: Mutex<State<Q>>,
    changed: Notify,
    /// Notified after every response.
    heard: Notify,
    period: Duration,
    random: Rng,
}

/// Asks one kind of poll on behalf of one controller.
pub struct Poller<Q: Poll>(Arc<Inner<Q>>);

impl<Q: Poll> Clone for Poller<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What every poller needs to run.
#[derive(Clone)]
pub struct Pollers {
    /// Whom to ask.
    pub dashboard: Arc<dyn Dashboard>,
    /// For the times of observations.
    pub clock: Clock,
    /// Where the polling runs.
    pub tasks: Tasks,
}

impl Pollers {
    /// Asks real dashboards, directly or through the API server as the settings say.
    pub fn http(runtime: &Runtime, context: &Context, client: kube::Client) -> Self {
        let route =
            if context.settings.use_kubernetes_proxy { Route::Proxied(client) } else { Route::Direct };
        let tokens = SecretTokens::new(runtime.api().clone());
        Self {
            dashboard: Arc::new(HttpDashboard::new(route, tokens)),
            clock: context.clock.clone(),
            tasks: runtime.tasks().clone(),
        }
    }
}

impl<Q: Poll> Poller<Q> {
    /// A poller that asks again `period` after a response. A `seed` makes its jitter repeatable.
    pub fn new(period: Duration, seed: Option<u64>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State { watched: HashMap::new(), schedule: PollSchedule::default() }),
            changed: Notify::new(),
            heard: Notify::new(),
            period,
            random: seed.map_or_else(Rng::from_entropy, Rng::seeded),
        }))
    }

    /// Watches exactly these polls for `root` from now on, and says what is known of each.
    pub fn watch(&self, root: &ObjectKey, polls: &[Q]) -> Vec<Option<Observation<Q::Response>>> {
        self.watch_since(root, polls, None)
    }

    /// The same, with an event elsewhere that makes responses from before it worthless: they are forgotten and the
    /// polls put again at once, so that the next response wakes the controller even if it is the same. Whose
    /// clock told the time of the event does not matter: what is asked after we have heard of it counts.
    pub fn watch_since(
        &self,
        root: &ObjectKey,
        polls: &[Q],
        event: Option<Timestamp>,
    ) -> Vec<Option<Observation<Q::Response>>> {
        let mut state = self.0.state.lock();
        let State { watched, schedule } = &mut *state;
        if polls.is_empty() {
            watched.remove(root);
            return Vec::new();
        }
        let of_root = watched.entry(root.clone()).or_default();
        of_root.retain(|poll, _| polls.contains(poll));
        let mut is_due = false;
        let known = polls.iter().map(|poll| {
            let mut schedule_now = || {
                is_due = true;
                schedule.add(Instant::now(), LastPoll::Succeeded, root.clone(), poll.clone())
            };
            let watched = of_root.entry(poll.clone()).or_insert_with(|| Watched::new(schedule_now()));
            if let Some(event) = event.filter(|event| watched.event != Some(*event)) {
                watched.event = Some(event);
                if watched.observation.as_ref().is_none_or(|known| known.at < event) {
                    let urgent_until = Some(Instant::now() + URGENT);
                    *watched = Watched { event: Some(event), urgent_until, ..Watched::new(schedule_now()) };
                }
            }
            watched.observation.clone()
        });
        let known = known.collect();
        if is_due {
            self.0.changed.notify_one();
        }
        known
    }

    /// Stops polling for `root`.
    pub fn forget(&self, root: &ObjectKey) {
        self.0.state.lock().watched.remove(root);
    }

    /// What is known for `root` is out of date, because we gave an order: asks at once. After orders that changed
    /// nothing it takes its time, because the response brings forth the next order.
    pub fn poll_again(&self, root: &ObjectKey) {
        let mut state = self.0.state.lock();
        let State { watched, schedule } = &mut *state;
        for (poll, watched) in watched.get_mut(root).into_iter().flatten() {
            let pause = if watched.fruitless == 0 { Duration::ZERO } else { self.pause(watched.fruitless) };
            let ticket =
                schedule.add(Instant::now() + pause, LastPoll::Succeeded, root.clone(), poll.clone());
            *watched = Watched {
                before_request: watched.observation.take().map(|known| known.response),
                event: watched.event,
                urgent_until: watched.urgent_until,
                fruitless: watched.fruitless,
                ..Watched::new(ticket)
            };
        }
        self.0.changed.notify_one();
    }

    /// Resolves when everything that is polled for `root` was answered once, if only by an error.
    pub async fn answered(&self, root: &ObjectKey) {
        loop {
            let mut heard = std::pin::pin!(self.0.heard.notified());
            // From here on no response is missed.
            heard.as_mut().enable();
            let is_answered = {
                let state = self.0.state.lock();
                let mut polls = state.watched.get(root).into_iter().flat_map(HashMap::values);
                polls.all(|watched| watched.observation.is_some())
            };
            if is_answered {
                return;
            }
            heard.await;
        }
    }

    /// How many polls are watched.
    pub fn len(&self) -> usize {
        self.0.state.lock().watched.values().map(HashMap::len).sum()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts polling; responses that differ from the last one wake the controller of `trigger`.
    pub fn start(&self, name: &'static str, with: &Pollers, trigger: Trigger) {
        let poller = self.clone();
        let Pollers { dashboard, clock, tasks } = with.clone();
        let stopping = tasks.clone();
        tasks.spawn(format!("poller of {name}"), async move {
            tokio::select! {
                () = stopping.stopping() => {}
                () = poller.run(&*dashboard, &clock, |root| trigger.changed(root, "Ray")) => {}
            }
        });
    }

    /// Polls forever. `tell` hears of roots about which something changed.
    pub(super) async fn run(&self, dashboard: &dyn Dashboard, clock: &Clock, tell: impl Fn(ObjectKey)) {
        self.reschedule_interrupted();
        let mut inflight = FuturesUnordered::new();
        let mut failing = 0;
        loop {
            while inflight.len() < INFLIGHT
                && let Some((item, last)) = self.take_due(failing < INFLIGHT_FAILING)
            {
                failing += usize::from(last == LastPoll::Failed);
                inflight.push(async move {
                    let at = clock.now();
                    let response = item.poll.ask(dashboard).await;
                    (item, last, Observation { at, since: at, response })
                });
            }
            let is_full = inflight.len() >= INFLIGHT;
            let next_due = if is_full { None } else { self.next_due(failing < INFLIGHT_FAILING) };
            tokio::select! {
                Some((item, last, observation)) = inflight.next() => {
                    failing -= usize::from(last == LastPoll::Failed);
                    if self.take_response(&item, observation) {
                        tell(item.root);
                    }
                    self.0.heard.notify_waiters();
                }
                () = self.0.changed.notified() => {}
                () = until(next_due) => {}
            }
        }
    }

    fn pause(&self, times: u32) -> Duration {
        Backoff { first: self.0.period, cap: Q::LONGEST_WAIT }.wait(times, &self.0.random)
    }

    /// The poll that has been due longest.
    fn take_due(&self, with_failed: bool) -> Option<(Item<Q>, LastPoll)> {
        let mut state = self.0.state.lock();
        let State { watched, schedule } = &mut *state;
        let (item, last) = schedule.take(Instant::now(), with_failed, |item| is_valid(watched, item))?;
        state.find(&item.root, &item.poll)?.polling = true;
        Some((item, last))
    }

    /// What an earlier run was polling will not be answered any more.
    fn reschedule_interrupted(&self) {
        let mut state = self.0.state.lock();
        let State { watched, schedule } = &mut *state;
        for (root, polls) in watched {
            for (poll, watched) in polls.iter_mut().filter(|(_, watched)| watched.polling) {
                watched.polling = false;
                watched.ticket =
                    schedule.add(Instant::now(), LastPoll::Succeeded, root.clone(), poll.clone());
            }
        }
    }

    fn next_due(&self, with_failed: bool) -> Option<Instant> {
        let mut state = self.0.state.lock();
        let State { watched, schedule } = &mut *state;
        schedule.next_due(with_failed, |item| is_valid(watched, item))
    }

    /// Takes a response in, and says whether anything changed.
    fn take_response(&self, item: &Item<Q>, mut observation: Observation<Q::Response>) -> bool {
        let mut state = self.0.state.lock();
        // It is not watched any more, or was sent before a request of ours.
        if !is_valid(&state.watched, item) {
            return false;
        }
        let is_good = Q::is_good(&observation.response);
        let before = state.find(&item.root, &item.poll);
        let (failures, urgent_until) =
            before.map_or((0, None), |watched| (watched.failures, watched.urgent_until));
        let failures = if is_good { 0 } else { failures.saturating_add(1) };
        let is_urgent = urgent_until.is_some_and(|end| Instant::now() < end);
        let (last, wait) = if is_good || is_urgent {
            (LastPoll::Succeeded, self.0.period)
        } else {
            (LastPoll::Failed, self.pause(failures))
        };
        let ticket = state.schedule.add(Instant::now() + wait, last, item.root.clone(), item.poll.clone());
        let Some(watched) = state.find(&item.root, &item.poll) else { return false };
        watched.failures = failures;
        watched.ticket = ticket;
        watched.polling = false;
        let is_as_before = watched.before_request.take().is_some_and(|before| before == observation.response);
        watched.fruitless = if is_as_before { watched.fruitless.saturating_add(1) } else { 0 };
        if let Some(before) = &watched.observation
            && before.response.is_ok() == observation.response.is_ok()
        {
            observation.since = before.since;
        }
        let before = watched.observation.replace(observation);
        let now = watched.observation.as_ref();
        match (before.map(|before| before.response), now.map(|now| &now.response)) {
            // Errors differ in their words only.
            (Some(Err(_)), Some(Err(_))) => false,
            (before, now) => before.as_ref() != now,
        }
    }
}

/// Whether an item of the schedule stands for what its poll is to be asked next.
fn is_valid<Q: Poll>(watched: &HashMap<ObjectKey, Polls<Q>>, item: &Item<Q>) -> bool {
    let found = watched.get(&item.root).and_then(|polls| polls.get(&item.poll));
    found.is_some_and(|watched| watched.ticket == item.ticket)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
