//! The query of requests for events.

use std::collections::BTreeMap;

use crate::path::{decode, encode};

const FIELD_SELECTOR: &str = "fieldSelector";

/// Adds a field selector to those of a query. The result is in the order of its keys, as Go's `url.Values` encodes.
pub(crate) fn with_field_selector(query: &str, selector: &str) -> String {
    let mut values = parse(query);
    let mut selectors = values.remove(FIELD_SELECTOR).unwrap_or_default();
    selectors.push(selector.to_owned());
    values.insert(FIELD_SELECTOR.to_owned(), vec![selectors.join(",")]);
    let pairs = values.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    let encoded: Vec<_> = pairs.map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    encoded.join("&")
}

/// Pairs with a semicolon or malformed encoding are left out, as Go does.
fn parse(query: &str) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (decode(key, true), decode(value, true)) {
            values.entry(key).or_default().push(value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_is_added_to_all_that_are_there() {
        for (query, expected) in [
            ("", "fieldSelector=a%3Db%2Fc"),
            ("limit=5&continue=x%2By", "continue=x%2By&fieldSelector=a%3Db%2Fc&limit=5"),
            ("fieldSelector=", "fieldSelector=%2Ca%3Db%2Fc"),
            (
                "fieldSelector=x%3D1&q=a+b&fieldSelector=y%3D2",
                "fieldSelector=x%3D1%2Cy%3D2%2Ca%3Db%2Fc&q=a+b",
            ),
            ("field%53elector=x&&a;b=1&c=%zz&d", "d=&fieldSelector=x%2Ca%3Db%2Fc"),
        ] {
            assert_eq!(with_field_selector(query, "a=b/c"), expected, "{query}");
        }
    }

    proptest::proptest! {
        /// Whatever a caller sends, there is one field selector, and ours is the last part of it.
        #[test]
        fn the_selector_cannot_be_avoided(query in "(fieldSelector|%66ieldSelector|a|;|&|=|%2C|%26|,|\\+){0,12}") {
            let values = parse(&with_field_selector(&query, "a=b"));
            let selectors = &values[FIELD_SELECTOR];
            proptest::prop_assert_eq!(selectors.len(), 1);
            proptest::prop_assert!(selectors[0] == "a=b" || selectors[0].ends_with(",a=b"));
        }
    }
}
