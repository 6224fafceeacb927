//! Periods and limits of an AppWrapper: those of its annotations within the bounds of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_api::appwrapper::metadata as annotation;
use quintet_api::config::codeflare::FaultTolerance;
use quintet_api::duration::GoDuration;

/// Reads options of one AppWrapper.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    pub(super) annotations: Option<&'a BTreeMap<String, String>>,
    pub(super) config: &'a FaultTolerance,
}

impl Options<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.annotations?.get(name).map(String::as_str)
    }

    /// A period between zero and the ceiling; malformed ones have the default.
    fn period(&self, name: &str, default: Duration) -> Duration {
        let period = self.text(name).and_then(go_duration).unwrap_or(default);
        period.min(self.config.grace_period_ceiling.0)
    }

    pub(super) fn admission_grace(&self) -> Duration {
        self.period(annotation::ADMISSION_GRACE_PERIOD, self.config.admission_grace_period.0)
    }

    pub(super) fn warmup_grace(&self) -> Duration {
        self.period(annotation::WARMUP_GRACE_PERIOD, self.config.warmup_grace_period.0)
    }

    pub(super) fn failure_grace(&self) -> Duration {
        self.period(annotation::FAILURE_GRACE_PERIOD, self.config.failure_grace_period.0)
    }

    pub(super) fn retry_pause(&self) -> Duration {
        self.period(annotation::RETRY_PAUSE_PERIOD, self.config.reset_pause.0)
    }

    pub(super) fn forceful_deletion_grace(&self) -> Duration {
        self.period(annotation::FORCEFUL_DELETION_GRACE_PERIOD, self.config.deletion_grace_period.0)
    }

    pub(super) fn deletion_on_failure_grace(&self) -> Duration {
        self.period(annotation::DELETION_ON_FAILURE_GRACE_PERIOD, Duration::ZERO)
    }

    /// As upstream, of a number that is too large the lower 32 bits count.
    pub(super) fn retry_limit(&self) -> i32 {
        let own = self.text(annotation::RETRY_LIMIT).and_then(|text| text.parse::<i64>().ok());
        own.map_or(self.config.retry_limit, |own| {
            let [a, b, c, d, ..] = own.to_le_bytes();
            i32::from_le_bytes([a, b, c, d])
        })
    }

    /// Never longer than configured.
    pub(super) fn success_ttl(&self) -> Duration {
        let ceiling = self.config.success_ttl_ceiling.0;
        let own = self.text(annotation::SUCCESS_TTL).and_then(go_duration);
        own.filter(|own| !own.is_zero() && *own < ceiling).unwrap_or(ceiling)
    }

    pub(super) fn terminal_exit_codes(&self) -> Vec<i64> {
        self.codes(annotation::TERMINAL_EXIT_CODES)
    }

    pub(super) fn retryable_exit_codes(&self) -> Vec<i64> {
        self.codes(annotation::RETRYABLE_EXIT_CODES)
    }

    /// The integers of a list; anything else is skipped.
    fn codes(&self, name: &str) -> Vec<i64> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').filter_map(|code| code.parse().ok()).collect()
    }
}

/// A duration as Go reads it, clipped at zero: `-10m` is one.
fn go_duration(text: &str) -> Option<Duration> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) if !text.starts_with('+') => (true, text),
        _ => (false, text),
    };
    let GoDuration(duration) = text.parse().ok()?;
    Some(if is_negative { Duration::ZERO } else { duration })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an option; its annotation; its default in seconds.
    type Row = (fn(Options<'_>) -> Duration, &'static str, u64);

    fn with<T>(name: &str, value: &str, read: impl Fn(Options<'_>) -> T) -> T {
        let (annotations, config) =
            (BTreeMap::from([(name.to_owned(), value.to_owned())]), FaultTolerance::default());
        read(Options { annotations: Some(&annotations), config: &config })
    }

    #[test]
    fn periods_are_clipped_and_malformed_ones_have_the_default() {
        let rows = [
            ("", 60),
            ("3s", 3),
            ("1h30m", 5400),
            ("1.5s", 1),
            ("-10m", 0),
            ("0", 0),
            ("48h", 24 * 3600),
            ("2d", 60),
            ("3 apples", 60),
            ("--3s", 60),
            ("-+3s", 60),
        ];
        for (text, seconds) in rows {
            let period = with(annotation::ADMISSION_GRACE_PERIOD, text, |options| options.admission_grace());
            assert_eq!(period.as_secs(), seconds, "{text:?}");
        }
    }

    #[test]
    fn every_option_has_its_annotation_and_default() {
        let config = FaultTolerance::default();
        let defaults = Options { annotations: None, config: &config };
        let rows: [Row; 6] = [
            (|options| options.warmup_grace(), annotation::WARMUP_GRACE_PERIOD, 300),
            (|options| options.failure_grace(), annotation::FAILURE_GRACE_PERIOD, 60),
            (|options| options.retry_pause(), annotation::RETRY_PAUSE_PERIOD, 90),
            (|options| options.forceful_deletion_grace(), annotation::FORCEFUL_DELETION_GRACE_PERIOD, 600),
            (|options| options.deletion_on_failure_grace(), annotation::DELETION_ON_FAILURE_GRACE_PERIOD, 0),
            (|options| options.success_ttl(), annotation::SUCCESS_TTL, 168 * 3600),
        ];
        for (read, name, default) in rows {
            assert_eq!(read(defaults).as_secs(), default, "{name}");
            assert_eq!(with(name, "7s", read).as_secs(), 7, "{name}");
        }
        assert_eq!(with(annotation::RETRY_LIMIT, "-4", |options| options.retry_limit()), -4);
        assert_eq!(with(annotation::RETRY_LIMIT, "many", |options| options.retry_limit()), 3);
        assert_eq!(with(annotation::RETRY_LIMIT, "4294967297", |options| options.retry_limit()), 1);
        assert_eq!(with(annotation::RETRY_LIMIT, "2147483648", |options| options.retry_limit()), i32::MIN);
        assert_eq!(with(annotation::RETRY_LIMIT, "99999999999999999999", |options| options.retry_limit()), 3);
    }

    #[test]
    fn a_time_to_live_is_shorter_than_the_configured_one() {
        for (text, hours) in [("900h", 168), ("0s", 168), ("-1h", 168), ("2h", 2)] {
            let ttl = with(annotation::SUCCESS_TTL, text, |options| options.success_ttl());
            assert_eq!(ttl.as_secs(), hours * 3600, "{text}");
        }
    }

    #[test]
    fn exit_codes_that_are_no_numbers_are_skipped() {
        assert_eq!(
            with(annotation::TERMINAL_EXIT_CODES, "3,10,abc, 4,42", |options| options.terminal_exit_codes()),
            [3, 10, 42]
        );
        assert_eq!(
            with(annotation::RETRYABLE_EXIT_CODES, "", |options| options.retryable_exit_codes()),
            Vec::<i64>::new()
        );
    }
}
