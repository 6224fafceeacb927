use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Text in, canonical text out, as the API server prints it.
#[test]
fn canonical_form() {
    let cases = [
        ("0", "0"),
        ("0n", "0"),
        ("-0", "0"),
        ("0.0Ki", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("0.001", "1m"),
        ("1024Ki", "1Mi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("1024", "1024"),
        ("1000Ki", "1000Ki"),
        ("100", "100"),
        ("100000", "100k"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e-3", "1e-3"),
        ("12e2", "1200"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("+1", "1"),
        ("-500m", "-500m"),
        ("-1.5Gi", "-1536Mi"),
        (".5", "500m"),
        ("5.", "5"),
        ("007", "7"),
        ("1.1Ki", "1126400m"),
        ("0.1Ki", "102400m"),
    ];
    for (text, expected) in cases {
        assert_eq!(quantity(text).to_string(), expected, "{text}");
    }
}

/// Below a nano there is nothing, so a little of something becomes one nano.
#[test]
fn rounds_away_from_zero_to_a_nano() {
    for (text, expected) in [
        ("0.1n", "1n"),
        ("1.1n", "2n"),
        ("-0.1n", "-1n"),
        ("1e-30", "1e-9"),
        ("0.0000000001", "1n"),
        ("0.00000000000000000000000000000000000000000001", "1n"),
        ("1.00000000000000000000000000000000000000000001", "1000000001n"),
        ("123456789012345678.1234567891", "123456789012345678123456790n"),
    ] {
        assert_eq!(quantity(text).to_string(), expected, "{text}");
    }
}

#[test]
fn amounts_with_many_digits_or_binary_suffixes_stop_at_the_largest_integer() {
    let largest = Quantity::from_units(i64::MAX, Notation::DecimalSi);
    for text in ["9223372036854775808", "10Ei", "99999999999999999999999999999999999999999", "16Ei"] {
        assert_eq!(quantity(text), largest, "{text}");
    }
    assert!(quantity("100E") > largest, "short decimals are kept as they are");
    assert_eq!(quantity("100E").units(), i64::MAX);
    assert_eq!(quantity("-100E").units(), i64::MIN);
}

#[test]
fn units_and_millis_round_away_from_zero() {
    assert_eq!(quantity("1001m").units(), 2);
    assert_eq!(quantity("-1001m").units(), -2);
    assert_eq!(quantity("1u").millis(), 1);
    assert_eq!(quantity("2").millis(), 2000);
    assert_eq!(quantity("9223372036854775807").millis(), i64::MAX);
}

#[test]
fn wrong_text_says_why() {
    for (text, expected) in [
        ("", ParseError::Format),
        ("-", ParseError::Format),
        ("abc", ParseError::Format),
        ("1 Gi", ParseError::Format),
        ("1,5", ParseError::Format),
        ("1ü", ParseError::Format),
        (".", ParseError::Number),
        ("1.2.3", ParseError::Number),
        ("1Kii", ParseError::Suffix),
        ("1e", ParseError::Suffix),
        ("1ki", ParseError::Suffix),
        ("1K", ParseError::Suffix),
        ("1e1.5", ParseError::Format),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(expected), "{text}");
    }
}

#[test]
fn sums_keep_the_notation_of_the_first_amount_that_has_one() {
    assert_eq!((Quantity::ZERO + quantity("1Gi")).to_string(), "1Gi");
    assert_eq!((quantity("1Gi") + quantity("1G")).to_string(), "2073741824");
    assert_eq!([quantity("512Mi"), quantity("512Mi")].into_iter().sum::<Quantity>().to_string(), "1Gi");
    assert_eq!((quantity("1") - quantity("300m")).to_string(), "700m");
}

#[test]
fn scaling_is_exact() {
    assert_eq!(quantity("300m").times(3).to_string(), "900m");
    assert_eq!(quantity("2Gi").scaled_by(quantity("1.5")).to_string(), "3Gi");
    assert_eq!(quantity("0.1").scaled_by(quantity("0.1")).to_string(), "10m");
    assert_eq!(quantity("1n").scaled_by(quantity("0.5")).to_string(), "1n");
    assert_eq!(quantity("9223372036854775807").times(i64::MAX).units(), i64::MAX);
}

#[test]
fn reads_text_and_numbers() {
    for (json, expected) in [(r#""2Gi""#, "2Gi"), ("2", "2"), ("0.5", "500m"), (r#"" 1 ""#, "1")] {
        assert_eq!(serde_json::from_str::<Quantity>(json).unwrap().to_string(), expected);
    }
    let error = serde_json::from_str::<Quantity>("true").unwrap_err().to_string();
    assert!(error.contains("expected a quantity such as 500m or 2Gi"), "{error}");
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let notation =
        prop_oneof![Just(Notation::DecimalSi), Just(Notation::BinarySi), Just(Notation::DecimalExponent)];
    let nanos = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<i64>().prop_map(|units| i128::from(units) * NANOS_PER_UNIT),
        (-1000_i64..1000).prop_map(|units| i128::from(units) * NANOS_PER_UNIT * KIBI * KIBI),
        -2_000_000_000_i128..2_000_000_000,
    ];
    (nanos, notation).prop_map(|(nanos, notation)| Quantity { nanos, notation })
}

const KIBI: i128 = 1024;

proptest! {
    #[test]
    fn printing_and_reading_changes_nothing(amount in any_quantity()) {
        let text = amount.to_string();
        let read = quantity(&text);
        prop_assert_eq!(read, amount);
        // A binary amount without a factor of 1024 has no suffix, and without one it is read as decimal.
        if read.notation == amount.notation {
            prop_assert_eq!(read.to_string(), text, "canonical text is a fixpoint");
        }
    }

    #[test]
    fn canonical_text_has_no_fraction(amount in any_quantity()) {
        prop_assert!(!amount.to_string().contains('.'));
    }

    #[test]
    fn addition_is_commutative_associative_and_undone_by_subtraction(
        a in any_quantity(), b in any_quantity(), c in any_quantity()
    ) {
        prop_assert_eq!(a + b, b + a);
        prop_assert_eq!((a + b) + c, a + (b + c));
        prop_assert_eq!(a + b - b, a);
    }

    #[test]
    fn scaling_by_a_whole_number_is_repeated_addition(a in any_quantity(), n in 0_i64..50) {
        let sum: Quantity = (0..n).map(|_| a).sum();
        prop_assert_eq!(a.times(n), sum);
        prop_assert_eq!(a.scaled_by(Quantity::from_units(n, Notation::DecimalSi)), sum);
    }

    #[test]
    fn order_agrees_with_subtraction(a in any_quantity(), b in any_quantity()) {
        prop_assert_eq!(a < b, (a - b).is_negative());
        prop_assert_eq!(a == b, (a - b).is_zero());
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn no_number_makes_it_panic(text in "[-+]?[0-9]{0,45}\\.?[0-9]{0,45}(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]{1,12})?") {
        if let Ok(amount) = text.parse::<Quantity>() {
            let _ = (amount.to_string(), amount.units(), amount.millis(), amount.times(i64::MAX), amount.scaled_by(amount));
        }
    }
}
