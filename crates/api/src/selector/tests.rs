use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

#[test]
fn each_form_selects_as_kubectl_does() {
    let gold = labels(&[("tier", "gold"), ("size", "10"), ("empty", "")]);
    for (text, expected) in [
        ("", true),
        ("tier=gold", true),
        ("tier==gold", true),
        (" tier = gold ", true),
        ("tier=silver", false),
        ("tier!=silver", true),
        ("absent!=silver", true),
        ("tier in (gold, silver)", true),
        ("tier in(silver)", false),
        ("absent in (gold)", false),
        ("tier notin (silver)", true),
        ("absent notin (gold)", true),
        ("tier", true),
        ("absent", false),
        ("!absent", true),
        ("!tier", false),
        ("size>9", true),
        ("size>10", false),
        ("size<11", true),
        ("tier>1", false),
        ("empty=", true),
        ("empty in ()", true),
        ("tier=gold,size>9,!absent", true),
        ("tier=gold,absent", false),
    ] {
        assert_eq!(selector(text).matches(&gold), expected, "{text}");
    }
}

#[test]
fn wrong_text_says_where_and_what_was_expected() {
    for (text, message) in [
        ("==a", "found '==', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b', expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a>b", "unable to parse requirement: found 'b', expected: integer"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=!", "unable to parse requirement: found '!', expected: identifier"),
        ("a,", "found '', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
    ] {
        assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn structured_selectors_are_checked() {
    let expression = |operator: &str, values: &[&str]| LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "a".into(),
            operator: operator.into(),
            values: Some(values.iter().map(ToString::to_string).collect()),
        }]),
    };
    assert_eq!(Selector::try_from(&expression("In", &["b"])).unwrap().to_string(), "a in (b)");
    for (operator, values, message) in [
        ("In", &[][..], "label \"a\": operator In needs at least one value"),
        ("Exists", &["b"][..], "label \"a\": operator Exists takes no values"),
        (
            "Equals",
            &["b"][..],
            "\"Equals\" is not a valid label selector operator; use In, NotIn, Exists or DoesNotExist",
        ),
    ] {
        assert_eq!(Selector::try_from(&expression(operator, values)).unwrap_err().to_string(), message);
    }
    assert!(Selector::try_from(&LabelSelector::default()).unwrap().selects_all());
}

fn any_requirement() -> impl Strategy<Value = String> {
    let value = "[a-c]{0,2}";
    prop_oneof![
        ("[a-c]{1,2}", value).prop_map(|(key, value)| format!("{key}={value}")),
        ("[a-c]{1,2}", value).prop_map(|(key, value)| format!("{key}!={value}")),
        ("[a-c]{1,2}", prop::collection::vec(value, 1..3))
            .prop_map(|(k, v)| format!("{k} in ({})", v.join(","))),
        ("[a-c]{1,2}", prop::collection::vec(value, 1..3))
            .prop_map(|(k, v)| format!("{k} notin ({})", v.join(","))),
        "[a-c]{1,2}",
        "[a-c]{1,2}".prop_map(|key| format!("!{key}")),
        ("[a-c]{1,2}", any::<i64>()).prop_map(|(key, bound)| format!("{key}>{bound}")),
    ]
}

proptest! {
    #[test]
    fn printing_and_reading_changes_nothing(parts in prop::collection::vec(any_requirement(), 0..4)) {
        let text = parts.join(",");
        prop_assert_eq!(selector(&text).to_string(), text);
    }

    #[test]
    fn more_requirements_never_select_more(
        parts in prop::collection::vec(any_requirement(), 1..4),
        carried in prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..4),
    ) {
        let all = selector(&parts.join(",")).matches(&carried);
        prop_assert_eq!(all, parts.iter().all(|part| selector(part).matches(&carried)));
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        let _ = text.parse::<Selector>();
    }
}
