use super::{Fault, Scanner, Writer, float, go_quoted, indent};

fn fault(text: &str) -> String {
    let mut scanner = Scanner::new(text.as_bytes());
    match scanner.skip().map(drop).and_then(|()| scanner.end()) {
        Err(Fault::Syntax(message)) => message,
        Err(Fault::Type) => "type".to_owned(),
        Err(Fault::Repeated) => "repeated".to_owned(),
        Ok(()) => "none".to_owned(),
    }
}

#[test]
fn syntax_is_checked_with_go_s_messages() {
    let cases = [
        (r#"{"a":[1,-0.5e+3,true,null,"\u00e9\n"]}"#, "none"),
        ("", "unexpected end of JSON input"),
        ("[1", "unexpected end of JSON input"),
        ("not json", "invalid character 'o' in literal null (expecting 'u')"),
        ("[1] x", "invalid character 'x' after top-level value"),
        ("\u{1f}", "invalid character '\\x1f' looking for beginning of value"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("1e", "invalid character ' ' in exponent of numeric literal"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("\"\\", "invalid character ' ' in string escape code"),
        ("\"\\u12", "invalid character ' ' in \\u hexadecimal character escape"),
        ("\"abc", "unexpected end of JSON input"),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(text), expected, "{text:?}");
    }
}

#[test]
fn nesting_is_bounded() {
    assert_eq!(fault(&"[".repeat(1_000_000)), "exceeded max depth");
}

#[test]
fn strings_are_resolved() {
    let cases = [
        (&br#""plain""#[..], "plain"),
        (br#""a\"\\\/\b\f\n\r\t""#, "a\"\\/\u{8}\u{c}\n\r\t"),
        (br#""gr\u00fc\ud83d\ude00""#, "gr\u{fc}\u{1f600}"),
        (br#""\ud83dx\udc00""#, "\u{fffd}x\u{fffd}"),
        (b"\"\xff\xfe\"", "\u{fffd}\u{fffd}"),
    ];
    for (text, expected) in cases {
        let read = Scanner::new(text).text().expect("a string").expect("not null");
        assert_eq!(read, expected);
    }
}

#[test]
fn types_are_strict() {
    assert_eq!(Scanner::new(b"1.0").integer(), Ok(Some(1)));
    assert_eq!(Scanner::new(b"1.5").integer(), Err(Fault::Type));
    assert_eq!(Scanner::new(b"\"1\"").integer(), Err(Fault::Type));
    assert_eq!(Scanner::new(b"null").integer(), Ok(None));
    assert_eq!(Scanner::new(b"7").text(), Err(Fault::Type));
    assert_eq!(Scanner::new(b"[1").text(), Err(Fault::Syntax("unexpected end of JSON input".to_owned())));
}

#[test]
fn numbers_are_written_as_go_does() {
    let cases = [
        (1.0, "1"),
        (0.5, "0.5"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (123_456_789.0, "123456789"),
        (8_589_934_592.0, "8589934592"),
    ];
    for (number, expected) in cases {
        assert_eq!(float(number), expected);
    }
}

#[test]
fn text_is_escaped_and_indented() {
    let mut writer = Writer::new();
    writer.raw("{");
    writer.text_member("a", "<\"\u{1}&");
    writer.raw_member("b", "[]");
    writer.raw_member("c", "{\"x\":1}");
    writer.raw("}");
    let compact = writer.into_bytes();
    assert_eq!(compact, br#"{"a":"\u003c\"\u0001\u0026","b":[],"c":{"x":1}}"#);
    let expected = "{\n \"a\": \"\\u003c\\\"\\u0001\\u0026\",\n \"b\": [],\n \"c\": {\n  \"x\": 1\n }\n}";
    assert_eq!(String::from_utf8(indent(&compact, " ")).expect("text"), expected);
}

#[test]
fn texts_are_quoted_as_go_does() {
    let cases = [
        ("a \"b\\", r#""a \"b\\""#),
        ("\0\u{7}\t\n\r\u{1b}\u{7f}", r#""\x00\a\t\n\r\x1b\x7f""#),
        ("\u{e9}\u{1f600}'", "\"\u{e9}\u{1f600}'\""),
        ("\u{a0}\u{200b}\u{e000}", r#""\u00a0\u200b\ue000""#),
    ];
    for (text, expected) in cases {
        assert_eq!(go_quoted(text), expected);
    }
}
