//! Fault injection between a client and the API server, by a seed.

use std::time::Duration;

use quintet_controller::rng::Rng;
use tokio::time::Instant;

/// How often each fault happens, per thousand requests (or watch events).
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// The request is refused with 500, 503 or 429 and has no effect.
    pub refused: u64,
    /// The request has its effect, but the answer is lost.
    pub answer_lost: u64,
    /// A write is refused with 409 although there is no conflict.
    pub conflict: u64,
    /// The answer takes up to twice the client's deadline.
    pub slow: u64,
    /// A write is rejected with 403 or 422 and has no effect.
    pub rejected: u64,
    /// The connection breaks, and the write takes effect up to four seconds later.
    pub late: u64,
    /// A watch breaks off before an event.
    pub watch_dropped: u64,
    /// A watch that broke off finds its version compacted.
    pub gap: u64,
    /// A watch event arrives late, by up to this many milliseconds.
    pub watch_delay_ms: u64,
}

impl FaultRates {
    /// Everything at once.
    pub fn all_faults() -> Self {
        Self {
            refused: 80,
            answer_lost: 60,
            conflict: 60,
            slow: 30,
            rejected: 0,
            late: 0,
            watch_dropped: 60,
            gap: 300,
            watch_delay_ms: 20_000,
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    Served,
    Refused(u16),
    AnswerLost,
    Conflict,
    /// The connection breaks at once, and the effect takes place after this long.
    Late(Duration),
    /// Never answered, and without effect.
    Swallowed,
    /// The client dies before the effect takes place.
    CrashBefore,
    /// The effect takes place, and then the client is dead.
    CrashAfter,
}

pub struct Faults {
    rng: Rng,
    pub rates: FaultRates,
    pub away_until: Option<Instant>,
    /// Reading lists and watches whose path contains the text is answered with this code.
    pub unreadable: Option<(&'static str, u16)>,
    /// Requests whose path contains the text are forbidden.
    pub forbidden: Option<&'static str>,
    /// Creations are rejected while there are this many objects of their kind.
    pub quota: Option<usize>,
    /// The client dies at this write, counted from one: before it takes effect, or after.
    pub crash: Option<(u64, bool)>,
    pub crashed: bool,
    /// Faults so far, other than late watch events.
    pub injected: u64,
    writes: u64,
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::seeded(seed),
            rates: FaultRates::default(),
            away_until: None,
            unreadable: None,
            forbidden: None,
            quota: None,
            crash: None,
            crashed: false,
            injected: 0,
            writes: 0,
        }
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Decides what happens to a request, and how long it takes.
    pub fn request(&mut self, writes: bool) -> (Duration, Treatment) {
        let (latency, treatment) = self.treatment(writes);
        self.injected += u64::from(treatment != Treatment::Served || latency > Duration::from_secs(1));
        (latency, treatment)
    }

    fn treatment(&mut self, writes: bool) -> (Duration, Treatment) {
        let quick = Duration::from_millis(1 + self.rng.below(10));
        if self.away_until.is_some_and(|until| Instant::now() < until) {
            // Half of the requests are refused at once, the others hang until the client gives up.
            return if self.happens(500) {
                (quick, Treatment::Refused(503))
            } else {
                (quick, Treatment::Swallowed)
            };
        }
        if writes {
            self.writes += 1;
            if let Some((at, after)) = self.crash
                && self.writes == at
            {
                self.crashed = true;
                return (quick, if after { Treatment::CrashAfter } else { Treatment::CrashBefore });
            }
        }
        let rates = self.rates;
        if self.happens(rates.refused) {
            let code = [500, 503, 429][usize::try_from(self.rng.below(3)).unwrap()];
            return (quick, Treatment::Refused(code));
        }
        if self.happens(rates.answer_lost) {
            return (quick, Treatment::AnswerLost);
        }
        if writes && self.happens(rates.conflict) {
            return (quick, Treatment::Conflict);
        }
        if writes && self.happens(rates.rejected) {
            let code = [403, 422][usize::try_from(self.rng.below(2)).unwrap()];
            return (quick, Treatment::Refused(code));
        }
        if writes && self.happens(rates.late) {
            return (quick, Treatment::Late(Duration::from_millis(self.rng.below(4000))));
        }
        if self.happens(rates.slow) {
            return (Duration::from_millis(self.rng.below(60_000)), Treatment::Served);
        }
        (quick, Treatment::Served)
    }

    /// How late a watch event is, or `None` if the watch breaks off.
    pub fn watch_event(&mut self) -> Option<Duration> {
        let away = self.away_until.is_some_and(|until| Instant::now() < until);
        if away || self.happens(self.rates.watch_dropped) {
            self.injected += 1;
            return None;
        }
        Some(Duration::from_millis(self.rng.below(self.rates.watch_delay_ms + 1)))
    }

    /// Whether the history that a new watch needs is gone.
    pub fn history_is_gone(&mut self) -> bool {
        let gone = self.happens(self.rates.gap);
        self.injected += u64::from(gone);
        gone
    }

    fn happens(&mut self, per_thousand: u64) -> bool {
        per_thousand > 0 && self.rng.below(1000) < per_thousand
    }
}
