use super::write::number_text;
use super::{Json, Value, parse};

fn error(text: &str) -> String {
    parse(text.as_bytes()).expect_err("the text is malformed")
}

#[test]
fn syntax_errors_read_as_in_go() {
    assert_eq!(error(""), "EOF");
    assert_eq!(error("  "), "EOF");
    assert_eq!(error("{"), "unexpected EOF");
    assert_eq!(error("name=e"), "invalid character 'a' in literal null (expecting 'u')");
    assert_eq!(error("{'a':1}"), r"invalid character '\'' looking for beginning of object key string");
    assert_eq!(error("{\"a\" 1}"), "invalid character '1' after object key");
    assert_eq!(error("{\"a\":1 \"b\":2}"), "invalid character '\"' after object key:value pair");
    assert_eq!(error("[1 2]"), "invalid character '2' after array element");
    assert_eq!(error("\"a\nb\""), r"invalid character '\n' in string literal");
    assert_eq!(error("-x"), "invalid character 'x' in numeric literal");
}

#[test]
fn nesting_is_limited_without_recursion() {
    assert_eq!(error(&"[".repeat(20_000)), "invalid character '[' exceeded max depth");
    let deep = format!("{}{}", "[".repeat(9_999), "]".repeat(9_999));
    assert!(parse(deep.as_bytes()).is_ok());
}

#[test]
fn what_follows_the_first_value_is_ignored() {
    assert_eq!(parse(b"{} trailing"), Ok(Value::Object(Vec::new())));
}

#[test]
fn broken_text_is_replaced() {
    assert_eq!(parse(b"\"\xff\xfe\""), Ok(Value::String("\u{fffd}\u{fffd}".to_owned())));
    assert_eq!(parse(br#""\ud800""#), Ok(Value::String("\u{fffd}".to_owned())));
    assert_eq!(parse(br#""\ud83d\ude00""#), Ok(Value::String("\u{1f600}".to_owned())));
}

#[test]
fn numbers_are_spelled_as_in_go() {
    for (value, text) in
        [(3.0, "3"), (1e300, "1e+300"), (1e-7, "1e-7"), (-1.25, "-1.25"), (1e20, "100000000000000000000")]
    {
        assert_eq!(number_text(value), text);
    }
}

#[test]
fn markup_is_escaped() {
    assert_eq!(Json::text("€<&>").encode(), r#""€\u003c\u0026\u003e""#);
}
