//! The rate limiter: adapts the number of concurrent requests to the latency and 429s of the API server.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Bounds of an adaptive limit.
#[derive(Clone, Copy, Debug)]
pub struct LimiterSettings {
    /// The limit at the start.
    pub initial: usize,
    /// The limit never falls below; one request at a time always goes on.
    pub min: usize,
    /// The limit never rises above.
    pub max: usize,
    /// Requests a second, on average, and how many at once after a pause; `None` leaves that to the server.
    pub rate: Option<(u32, u32)>,
    /// A response that takes this many times longer than the quickest recent ones means that requests queue at
    /// the server.
    pub slowdown: f64,
}

impl Default for LimiterSettings {
    /// An API server's priority level for service accounts has tens of seats: start in that range, and
    /// let latency and 429s decide from there.
    fn default() -> Self {
        Self { initial: 16, min: 1, max: 256, rate: None, slowdown: 4.0 }
    }
}

/// Limits the requests in flight: additive increase while the limit is used and responses are quick,
/// multiplicative decrease when they slow down or the server responds with 429.
#[derive(Clone, Debug)]
pub struct Limiter(Option<Arc<Adaptive>>);

#[derive(Debug)]
struct Adaptive {
    settings: LimiterSettings,
    semaphore: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The desired limit; the semaphore follows it in whole permits.
    limit: f64,
    /// Permits that exist, held or not.
    permits: usize,
    /// Exponential average of the latency of quick responses: slow to rise, quick to fall.
    usual: Option<f64>,
    /// When the average was last updated.
    learnt: Instant,
    /// No second decrease for the same congestion.
    calm_until: Instant,
    /// The server asked for no requests until then (`Retry-After`).
    closed_until: Instant,
    /// When the allowed rate has paid for all requests so far.
    paid_until: Instant,
    throttled: u64,
}

/// The state of a limiter, for debugging.
#[derive(Clone, Debug, Serialize)]
pub struct LimiterReport {
    /// Requests allowed at once.
    pub limit: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Responses with 429 so far.
    pub throttled: u64,
}

/// Permission to send one request.
#[derive(Debug)]
pub struct Permit {
    started: Instant,
    held: Option<(Arc<Adaptive>, OwnedSemaphorePermit)>,
}

/// How a request ended, as far as the limit is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The server responded.
    Served,
    /// The deadline was exceeded, or the server failed.
    Overloaded,
    /// 429, with its `Retry-After`.
    Throttled(Option<Duration>),
}

impl Limiter {
    /// No limit, for an API in the same process.
    pub fn none() -> Self {
        Self(None)
    }

    /// A limit within `settings`.
    pub fn adaptive(settings: LimiterSettings) -> Self {
        let now = Instant::now();
        let permits = settings.initial.clamp(settings.min.max(1), settings.max.max(1));
        Self(Some(Arc::new(Adaptive {
            settings,
            semaphore: Arc::new(Semaphore::new(permits)),
            state: Mutex::new(State {
                limit: as_float(permits),
                permits,
                usual: None,
                learnt: now,
                calm_until: now,
                closed_until: now,
                paid_until: now,
                throttled: 0,
            }),
        })))
    }

    /// Waits for permission to send. First come, first served.
    pub async fn acquire(&self) -> Permit {
        let Some(adaptive) = &self.0 else {
            return Permit { started: Instant::now(), held: None };
        };
        // The semaphore is never closed.
        let permit = Arc::clone(&adaptive.semaphore).acquire_owned().await.ok();
        let open_at = adaptive.state.lock().open_at(adaptive.settings.rate);
        tokio::time::sleep_until(open_at).await;
        Permit { started: Instant::now(), held: permit.map(|permit| (Arc::clone(adaptive), permit)) }
    }

    /// The state, for debugging; `None` if there is no limit.
    pub fn report(&self) -> Option<LimiterReport> {
        let adaptive = self.0.as_ref()?;
        let state = adaptive.state.lock();
        Some(LimiterReport {
            limit: whole(state.limit),
            in_flight: state.permits.saturating_sub(adaptive.semaphore.available_permits()),
            throttled: state.throttled,
        })
    }
}

impl State {
    /// When the next request may be sent; reserves that time.
    fn open_at(&mut self, rate: Option<(u32, u32)>) -> Instant {
        let now = Instant::now();
        let Some((per_second, burst)) = rate.filter(|(per_second, _)| *per_second > 0) else {
            return self.closed_until;
        };
        let price = Duration::from_secs(1) / per_second;
        let credit = price * burst.max(1).saturating_sub(1);
        let go = self.paid_until.checked_sub(credit).unwrap_or(now);
        self.paid_until = self.paid_until.max(now) + price;
        go.max(self.closed_until)
    }
}

impl Permit {
    /// Returns the permit and adapts the limit to the outcome.
    pub fn finish(mut self, outcome: RequestOutcome) {
        if let Some((adaptive, permit)) = self.held.take() {
            adaptive.learn(self.started.elapsed(), outcome, permit);
        }
    }
}

impl Adaptive {
    fn learn(&self, latency: Duration, outcome: RequestOutcome, permit: OwnedSemaphorePermit) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let seconds = latency.as_secs_f64();
        let usual = *state.usual.get_or_insert(seconds);
        match outcome {
            RequestOutcome::Served => {
                // Quick responses pull the average down at once, slow ones push it up over half a minute: it
                // stays near the floor, yet follows a server that has become slower for good.
                let since = now.duration_since(state.learnt).as_secs_f64();
                let weight = if seconds < usual { 0.25 } else { (since / 30.0).min(1.0) };
                state.usual = Some(usual + (seconds - usual) * weight);
                state.learnt = now;
                // Below a few milliseconds ratios are noise.
                let slow = seconds > 0.025 && seconds > usual * self.settings.slowdown;
                // A slow response while there are few requests is about the request, not about the load.
                let busy = 2 * self.semaphore.available_permits() <= state.permits;
                if slow && busy {
                    self.decrease(&mut state, 0.9, latency, now);
                } else if !slow && self.semaphore.available_permits() == 0 {
                    state.limit = (state.limit + 1.0 / state.limit.max(1.0)).min(as_float(self.settings.max));
                }
            }
            RequestOutcome::Overloaded => self.decrease(&mut state, 0.7, latency, now),
            RequestOutcome::Throttled(wait) => {
                state.throttled += 1;
                let wait = wait.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(30));
                self.decrease(&mut state, 0.5, latency.max(wait), now);
                state.closed_until = state.closed_until.max(now + wait);
            }
        }
        let wanted = whole(state.limit).max(self.settings.min).max(1);
        if state.permits > wanted {
            // Too many: this one is not returned.
            permit.forget();
            state.permits -= 1;
        } else {
            self.semaphore.add_permits(wanted - state.permits);
            state.permits = wanted;
            drop(permit);
        }
    }

    /// Decreases once for all responses of the same congestion: those of the next `calm`.
    fn decrease(&self, state: &mut State, factor: f64, calm: Duration, now: Instant) {
        if now >= state.calm_until {
            state.limit = (state.limit * factor).max(as_float(self.settings.min.max(1)));
            state.calm_until = now + calm;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits are small numbers")]
fn as_float(limit: usize) -> f64 {
    limit as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits are small positive numbers"
)]
fn whole(limit: f64) -> usize {
    limit.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(limiter: &Limiter, count: usize, latency: Duration, outcome: RequestOutcome) {
        let mut all = Vec::new();
        for _ in 0..count {
            let limiter = limiter.clone();
            all.push(async move {
                let permit = limiter.acquire().await;
                tokio::time::sleep(latency).await;
                permit.finish(outcome);
            });
        }
        futures::future::join_all(all).await;
    }

    fn limit(limiter: &Limiter) -> usize {
        limiter.report().unwrap().limit
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_to_a_rate_after_a_burst() {
        let settings = LimiterSettings { initial: 100, rate: Some((10, 5)), ..LimiterSettings::default() };
        let limiter = Limiter::adaptive(settings);
        let start = Instant::now();
        send(&limiter, 25, Duration::ZERO, RequestOutcome::Served).await;
        assert_eq!(start.elapsed().as_millis() / 100, 20, "5 at once, 20 more at 10 a second");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let start = Instant::now();
        send(&limiter, 5, Duration::ZERO, RequestOutcome::Served).await;
        assert!(start.elapsed() < Duration::from_millis(50), "a pause earns a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_response_while_idle_does_not_decrease_the_limit() {
        let limiter = Limiter::adaptive(LimiterSettings::default());
        send(&limiter, 4, Duration::from_millis(5), RequestOutcome::Served).await;
        for _ in 0..20 {
            send(&limiter, 1, Duration::from_millis(200), RequestOutcome::Served).await;
        }
        assert_eq!(limit(&limiter), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn rises_while_responses_are_quick_and_falls_when_they_slow_down() {
        let limiter = Limiter::adaptive(LimiterSettings::default());
        send(&limiter, 2000, Duration::from_millis(10), RequestOutcome::Served).await;
        let quick = limit(&limiter);
        assert!(quick > 40, "{quick}");
        send(&limiter, 2000, Duration::from_millis(400), RequestOutcome::Served).await;
        assert!(limit(&limiter) < quick, "{} < {quick}", limit(&limiter));
    }

    #[tokio::test(start_paused = true)]
    async fn a_429_halves_the_limit_once_and_waits_as_asked() {
        let limiter = Limiter::adaptive(LimiterSettings::default());
        send(&limiter, 8, Duration::from_millis(10), RequestOutcome::Throttled(Some(Duration::from_secs(7))))
            .await;
        assert_eq!(limit(&limiter), 8);
        let before = Instant::now();
        send(&limiter, 1, Duration::ZERO, RequestOutcome::Served).await;
        assert!(before.elapsed() >= Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn never_falls_below_the_minimum() {
        let limiter = Limiter::adaptive(LimiterSettings::default());
        for _ in 0..100 {
            send(&limiter, 4, Duration::from_millis(10), RequestOutcome::Overloaded).await;
        }
        assert_eq!(limit(&limiter), 1);
        assert_eq!(limiter.report().unwrap().in_flight, 0);
        send(&limiter, 4, Duration::from_millis(1), RequestOutcome::Served).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_request_returns_its_permit() {
        let limiter = Limiter::adaptive(LimiterSettings { initial: 1, max: 1, ..LimiterSettings::default() });
        drop(limiter.acquire().await);
        send(&limiter, 3, Duration::from_millis(1), RequestOutcome::Served).await;
    }
}
