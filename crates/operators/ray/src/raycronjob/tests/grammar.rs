//! Every sentence of the grammar.

use jiff::{Timestamp, tz::TimeZone};
use proptest::prelude::*;

use crate::raycronjob::schedule::{Schedule, zone};

fn next(schedule: &str, base: &str, zone_name: &str) -> Option<String> {
    let schedule: Schedule = schedule.parse().unwrap();
    let zone = zone(Some(zone_name)).unwrap();
    let tick = schedule.next(base.parse().unwrap(), &zone)?;
    Some(tick.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

#[test]
fn fields_lists_ranges_steps_and_names() {
    // The first of January 2026 is a Thursday.
    for (schedule, expected) in [
        ("* * * * *", "2026-01-01T00:01:00"),
        ("? ? ? ? ?", "2026-01-01T00:01:00"),
        ("0 * * * *", "2026-01-01T01:00:00"),
        ("*/15 * * * *", "2026-01-01T00:15:00"),
        ("5/20 * * * *", "2026-01-01T00:05:00"),
        ("7,3,9 * * * *", "2026-01-01T00:03:00"),
        ("10-12,30 2 * * *", "2026-01-01T02:10:00"),
        ("10-20/5 2 * * *", "2026-01-01T02:10:00"),
        ("0 0 * feb *", "2026-02-01T00:00:00"),
        ("0 0 * FEB-Mar *", "2026-02-01T00:00:00"),
        ("0 0 * * mon", "2026-01-05T00:00:00"),
        ("0 0 * * 0", "2026-01-04T00:00:00"),
        ("0 0 * * Sat,Sun", "2026-01-03T00:00:00"),
        ("0 0 31 * *", "2026-01-31T00:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00"),
        ("59 23 31 12 ?", "2026-12-31T23:59:00"),
        ("@yearly", "2027-01-01T00:00:00"),
        ("@annually", "2027-01-01T00:00:00"),
        ("@monthly", "2026-02-01T00:00:00"),
        ("@weekly", "2026-01-04T00:00:00"),
        ("@daily", "2026-01-02T00:00:00"),
        ("@midnight", "2026-01-02T00:00:00"),
        ("@hourly", "2026-01-01T01:00:00"),
        ("@every 90s", "2026-01-01T00:01:30"),
        ("@every 1h30m", "2026-01-01T01:30:00"),
        ("@every 1500ms", "2026-01-01T00:00:01"),
        ("@every 10ms", "2026-01-01T00:00:01"),
    ] {
        let tick = next(schedule, "2026-01-01T00:00:00Z", "UTC");
        assert_eq!(tick.as_deref(), Some(format!("{expected}+00:00").as_str()), "{schedule}");
    }
}

#[test]
fn days_of_month_and_week() {
    for (schedule, expected) in [
        // Both are given: either will do.
        ("0 0 13 * 5", "2026-01-02"),
        ("0 0 3 * 5", "2026-01-02"),
        ("0 0 2-3 * 1", "2026-01-02"),
        // One is a star: both have to.
        ("0 0 13 * *", "2026-01-13"),
        ("0 0 * * 5", "2026-01-02"),
        ("0 0 ? * 5", "2026-01-02"),
        // A star with a step is none: the fourth is a day of every third, and so is Sunday.
        ("0 0 */3 * 0", "2026-01-04"),
        ("0 0 */10 * 1", "2026-01-05"),
        ("0 0 15 * */2", "2026-01-03"),
        // A step of one changes nothing.
        ("0 0 */1 * 5", "2026-01-02"),
        ("0 0 13 * */1", "2026-01-13"),
        // A star in a list makes it one.
        ("0 0 1,* * 5", "2026-01-02"),
    ] {
        let tick = next(schedule, "2026-01-01T00:00:00Z", "UTC").unwrap();
        assert_eq!(tick.get(..10), Some(expected), "{schedule}");
    }
}

#[test]
fn what_is_no_schedule() {
    for (schedule, expected) in [
        ("", "empty spec string"),
        ("* * * *", "found 4"),
        ("* * * * * *", "found 6"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * 32 * *", "end of range (32) above maximum (31): 32"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * * * xyz", "failed to parse int from xyz: strconv.Atoi: parsing \"xyz\": invalid syntax"),
        ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1/2/3 * * * *", "too many slashes"),
        ("1-2-3 * * * *", "too many hyphens"),
        ("*/x * * * *", "failed to parse int from x"),
        (", * * * *", "nothing is selected"),
        ("@often", "unrecognized descriptor: @often"),
        ("@Daily", "unrecognized descriptor: @Daily"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every soon", "failed to parse duration @every soon: time: invalid duration \"soon\""),
    ] {
        let error = schedule.parse::<Schedule>().unwrap_err();
        assert!(error.contains(expected), "{schedule:?}: {error}");
    }
}

#[test]
fn what_never_comes_is_nothing_after_five_years() {
    assert_eq!(next("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC"), None);
    assert_eq!(next("0 0 31 4,6,9,11 *", "2026-01-01T00:00:00Z", "UTC"), None);
    // 2100 is no leap year, so that after 2096 the next is eight years away.
    assert_eq!(next("0 0 29 2 *", "2096-03-01T00:00:00Z", "UTC"), None);
    let tick = next("0 0 29 2 *", "2024-03-01T00:00:00Z", "UTC");
    assert_eq!(tick.as_deref(), Some("2028-02-29T00:00:00+00:00"));
}

#[test]
fn a_tick_is_strictly_later_and_seconds_are_dropped() {
    for (base, expected) in [
        ("2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00+00:00"),
        ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00+00:00"),
        ("2026-01-01T00:01:00.5Z", "2026-01-01T00:02:00+00:00"),
    ] {
        assert_eq!(next("* * * * *", base, "UTC").as_deref(), Some(expected), "{base}");
    }
    let every = next("@every 10s", "2026-01-01T00:00:00.7Z", "UTC");
    assert_eq!(every.as_deref(), Some("2026-01-01T00:00:10+00:00"));
}

#[test]
fn clocks_that_are_put_forward_skip_and_put_back_repeat() {
    let berlin = "Europe/Berlin";
    // From 02:00 to 03:00 on 29 March 2026.
    let skipped = next("30 2 * * *", "2026-03-28T12:00:00Z", berlin);
    assert_eq!(skipped.as_deref(), Some("2026-03-30T02:30:00+02:00"));
    let hourly = next("0 * * * *", "2026-03-29T00:00:00Z", berlin);
    assert_eq!(hourly.as_deref(), Some("2026-03-29T03:00:00+02:00"));
    // From 03:00 to 02:00 on 25 October 2026.
    let once = next("30 2 * * *", "2026-10-24T12:00:00Z", berlin).unwrap();
    assert_eq!(once, "2026-10-25T02:30:00+02:00");
    let twice = next("30 2 * * *", "2026-10-25T00:30:00Z", berlin).unwrap();
    assert_eq!(twice, "2026-10-25T02:30:00+01:00");
    let then = next("30 2 * * *", "2026-10-25T01:30:00Z", berlin).unwrap();
    assert_eq!(then, "2026-10-26T02:30:00+01:00");
    // Of times that come twice, the first ones come before the second ones.
    let mut ticks = Vec::new();
    let mut base: Timestamp = "2026-10-24T23:59:00Z".parse().unwrap();
    let (schedule, zone) = ("0,30 2 * * *".parse::<Schedule>().unwrap(), zone(Some(berlin)).unwrap());
    for _ in 0..4 {
        base = schedule.next(base, &zone).unwrap();
        ticks.push(base.to_string());
    }
    assert_eq!(
        ticks,
        ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"]
    );
    // A day without midnight.
    let cairo = next("@daily", "2026-04-23T12:00:00Z", "Africa/Cairo").unwrap();
    assert_eq!(cairo, "2026-04-25T00:00:00+03:00");
}

#[test]
fn zones_are_known_by_name_without_a_database_on_the_machine() {
    for name in ["UTC", "Local", "America/New_York", "Asia/Kolkata"] {
        assert!(zone(Some(name)).is_ok(), "{name}");
    }
    let error = zone(Some("Mars/Olympus")).unwrap_err();
    assert_eq!(error, "invalid time zone: unknown time zone Mars/Olympus");
    let kolkata = next("0 9 * * *", "2026-01-01T00:00:00Z", "Asia/Kolkata").unwrap();
    assert_eq!(kolkata, "2026-01-01T09:00:00+05:30");
}

proptest! {
    /// Looking minute by minute finds the same tick.
    #[test]
    fn the_next_tick_is_the_first_minute_that_matches(
        minute in 0..60_u8, hours in 1..24_u8, weekday in 0..7_u8, base in 1_760_000_000_i64..1_830_000_000,
    ) {
        let text = format!("{minute} */{hours} * * {weekday}");
        let schedule: Schedule = text.parse().unwrap();
        let zone = TimeZone::get("America/New_York").unwrap();
        let base = Timestamp::from_second(base).unwrap();
        let tick = schedule.next(base, &zone).unwrap();
        let mut slow = Timestamp::from_second((base.as_second() / 60 + 1) * 60).unwrap();
        loop {
            let local = zone.to_datetime(slow);
            let matches = local.minute() == i8::try_from(minute).unwrap()
                && local.hour() % i8::try_from(hours).unwrap() == 0
                && local.weekday().to_sunday_zero_offset() == i8::try_from(weekday).unwrap();
            if matches {
                break;
            }
            slow += jiff::SignedDuration::from_mins(1);
        }
        prop_assert_eq!(tick, slow, "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-0-9*?/, a-zA-Z@]{0,30}") {
        if let Ok(schedule) = text.parse::<Schedule>() {
            let _ = schedule.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC);
        }
    }

    /// The last tick that is due is what one finds by going from tick to tick.
    #[test]
    fn the_last_due_tick_is_the_last_one(step in 1..59_u8, hour in 0..24_u8, hours in 1..100_i64) {
        let schedule: Schedule = format!("*/{step} {hour} * * *").parse().unwrap();
        let base = Timestamp::from_second(1_767_225_600).unwrap();
        let now = base + jiff::SignedDuration::from_hours(hours);
        let mut ticks = Vec::new();
        let mut tick = schedule.next(base, &TimeZone::UTC);
        while let Some(due) = tick.filter(|tick| *tick <= now) {
            ticks.push(due);
            tick = schedule.next(due, &TimeZone::UTC);
        }
        let expected = ticks.last().map(|last| (*last, ticks.len() == 1));
        prop_assert_eq!(schedule.last_due(base, now, &TimeZone::UTC), expected);
    }
}
