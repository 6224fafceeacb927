use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn eval(expression: &str, value: &Value) -> Result<String, String> {
    let program = Program::compile(expression, &["self", "oldSelf"]).map_err(|error| error.to_string())?;
    let budget = Cell::new(CALL_BUDGET);
    let variables = [("self", Val::from_json(value, None))];
    match program.eval(&variables, &budget) {
        Ok(Val::Bool(value)) => Ok(value.to_string()),
        Ok(value) => Ok(functions::to_text(&value).unwrap_or_else(|| format!("{value:?}"))),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn holds(expression: &str) {
    assert_eq!(eval(expression, &sample()), Ok("true".into()), "{expression}");
}

#[track_caller]
fn fails(expression: &str, error: &str) {
    assert_eq!(eval(expression, &sample()), Err(error.into()), "{expression}");
}

fn sample() -> Value {
    json!({
        "n": 3, "d": 1.5, "s": "hello", "list": [3, 1, 2], "names": ["a", "b"],
        "map": { "x": 1, "y": 2 }, "items": [{ "name": "a", "v": 1 }, { "name": "b", "v": 2 }],
        "namespace": "ns", "a-b": "dash", "nothing": null
    })
}

#[test]
fn the_language() {
    for expression in [
        "1 + 2 * 3 == 7",
        "-3 - -2 == -1",
        "7 / 2 == 3 && 7 % 2 == 1",
        "1.5 + 0.5 == 2.0",
        "'a' + \"b\" == 'ab'",
        "!false && (true || 1 / 0 == 1)",
        "false && 1 / 0 == 1 || true",
        "1 / 0 == 1 || true",
        "self.n > 2 ? true : false",
        "self.n in self.list && !(9 in self.list)",
        "'x' in self.map",
        "self.map['x'] == 1 && self.list[1] == 1",
        "has(self.s) && !has(self.zzz)",
        "self.items.all(i, i.v > 0)",
        "self.items.exists(i, i.name == 'b')",
        "self.items.exists_one(i, i.v == 2)",
        "self.items.map(i, i.name) == ['a', 'b']",
        "self.items.filter(i, i.v > 1).size() == 1",
        "self.items.map(i, i.v > 1, i.name) == ['b']",
        "self.map.all(k, self.map[k] > 0)",
        "self.map.exists(k, v, v == 2)",
        "self.list.transformList(i, v, i + v) == [3, 2, 4]",
        "self.__namespace__ == 'ns' && self.a__dash__b == 'dash'",
        "size(self.s) == 5 && self.s.size() == 5",
        "{'a': 1}.a == 1 && {'a': 1, 'b': 2}.size() == 2",
        "[1, 2] + [3] == [1, 2, 3]",
        "type(1) == int && type('a') == string",
        "int('42') == 42 && string(42) == '42' && double(2) == 2.0",
        "1 == 1.0 && 1u == 1",
        "b'abc' == bytes('abc')",
        "r'\\d+' == '\\\\d+'",
        "'\\u0041\\x42' == 'AB'",
        "0x10 == 16",
        "-9223372036854775808 < 0",
        "dyn(self.n) == 3",
    ] {
        holds(expression);
    }
    fails("self.zzz == 1", "no such key: zzz");
    fails("self.map['q'] == 1", "no such key: q");
    fails("self.list[7] == 1", "index out of bounds: 7");
    fails("1 / 0 == 1", "division by zero");
    fails("9223372036854775807 + 1 > 0", "integer overflow");
    fails("1 + 1.0 == 2.0", "no such overload");
}

#[test]
fn the_libraries() {
    for expression in [
        "'Hello'.lowerAscii() == 'hello' && 'a,b'.split(',') == ['a', 'b']",
        "'hello'.substring(1, 3) == 'el' && 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3",
        "['a', 'b'].join('-') == 'a-b' && 'aXbX'.replace('X', '') == 'ab' && ' a '.trim() == 'a'",
        "'%s has %d (%.1f)'.format(['x', 3, 1.25]) == 'x has 3 (1.2)'",
        "'abc'.charAt(1) == 'b'",
        "'foo123'.matches('^[a-z]+[0-9]+$') && 'a1b22'.find('[0-9]+') == '1'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "[1, 2, 3].isSorted() && ![2, 1].isSorted() && [1, 2, 3].sum() == 6",
        "[3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2",
        "[3, 1, 2].sort() == [1, 2, 3] && [1, 1].distinct() == [1] && [[1], [2]].flatten() == [1, 2]",
        "self.items.sortBy(i, -i.v)[0].name == 'b'",
        "[1, 2, 3].slice(1, 2) == [2] && lists.range(3) == [0, 1, 2]",
        "sets.contains([1, 2, 3], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
        "optional.of(1).hasValue() && !optional.none().hasValue() && optional.none().orValue(7) == 7",
        "self.?zzz.orValue('d') == 'd' && self.?s.orValue('d') == 'hello' && self.?zzz.?y.orValue(1) == 1",
        "self.?n.optMap(x, x + 1).orValue(0) == 4 && self.list[?9].orValue(5) == 5",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').add(quantity('500m')).compareTo(quantity('1')) == 0",
        "isQuantity('1Gi') && !isQuantity('x') && quantity('2').isInteger() && quantity('2').asInteger() == 2",
        "url('https://a.b:80/p?q=1').getHost() == 'a.b:80' && url('https://a.b:80/p?q=1').getPort() == '80'",
        "url('https://a.b:80/p?q=1').getQuery()['q'] == ['1'] && isURL('https://x') && !isURL('::')",
        "ip('10.0.0.1').family() == 4 && isIP('::1') && !isIP('1.2.3') && ip('127.0.0.1').isLoopback()",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && isCIDR('::/0') && cidr('1.2.3.0/24').prefixLength() == 24",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.0.0-rc.1') && !isSemver('1.0') && semver('v1', true).major() == 1",
        "!format.dns1123Label().validate('abc').hasValue() && format.dns1123Label().validate('A_').hasValue()",
        "format.named('uuid').hasValue()",
        "duration('1h') > duration('59m') && duration('90s').getMinutes() == 1",
        "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T03:04:05Z').getMonth() == 0",
        "timestamp('2026-01-02T00:00:00Z') + duration('1h') == timestamp('2026-01-02T01:00:00Z')",
    ] {
        holds(expression);
    }
}

#[test]
fn mistakes_are_found_at_compile_time() {
    for (expression, text) in [
        ("self.foo(1)", "undeclared reference to 'foo'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("1 +", "Syntax error"),
        ("'abc", "Syntax error: unterminated string"),
        ("self.items.all(i, ", "Syntax error"),
        ("self.a b", "Syntax error: mismatched input 'b'"),
        ("has(self)", "invalid argument to has() macro"),
    ] {
        let error = Program::compile(expression, &["self"]).unwrap_err().to_string();
        assert!(error.contains(text), "{expression}: {error}");
    }
    let deep = "(".repeat(5000) + "1" + &")".repeat(5000);
    assert!(Program::compile(&deep, &[]).unwrap_err().to_string().contains("recursion limit"));
    let chain = "1".to_owned() + &"+1".repeat(5000);
    assert!(Program::compile(&chain, &[]).is_err());
}

#[test]
fn evaluation_stops_at_the_budget() {
    let many: Vec<i64> = (0..2000).collect();
    let error = eval("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", &json!(many)).unwrap_err();
    assert!(error.contains("cost limit exceeded"), "{error}");
}

/// What an expression with bindings says of a device-like variable.
fn of_device(expression: &str) -> Result<String, String> {
    let inner = vec![(Val::text("name"), Val::text("a")), (Val::text("size"), Val::Int(3))];
    let outer = vec![(Val::text("known"), Val::Map(Rc::new(inner)))];
    let device = vec![(Val::text("parts"), Val::Maps(Rc::new(outer)))];
    let fields = [("parts", Type::Map(Box::new(Type::Map(Box::new(Type::Dyn)))))];
    let program =
        Program::compile_with_bindings(expression, &["device"]).map_err(|error| error.to_string())?;
    program.result(&[("device", Type::Object(Fields::Named(&fields)))]).map_err(|error| error.to_string())?;
    let value = program
        .eval(&[("device", Val::Map(Rc::new(device)))], &Cell::new(CALL_BUDGET))
        .map_err(|error| error.to_string())?;
    Ok(functions::to_text(&value).unwrap_or_else(|| format!("{value:?}")))
}

#[test]
fn values_have_names_where_they_may() {
    for expression in [
        "cel.bind(known, device.parts['known'], known.name == 'a' && known.size == 3)",
        "cel.bind(x, 1, cel.bind(y, x + 1, x + y)) == 3",
        "cel.bind(x, [1, 2], x.all(y, y in x))",
    ] {
        assert_eq!(of_device(expression), Ok("true".into()), "{expression}");
    }
    for (expression, text) in [
        ("cel.bind(1, 2, 3) == 3", "variable names must be simple identifiers"),
        ("cel.bind(x, 2) == 3", "takes a name, a value and an expression"),
        ("cel.bind(x, 1, x + 'a') == ''", "no matching overload"),
        ("cel.bind(x, 1, true) && x == 1", "undeclared reference to 'x'"),
        ("device.other == 1", "undefined field 'other'"),
    ] {
        let error = of_device(expression).unwrap_err();
        assert!(error.contains(text), "{expression}: {error}");
    }
    let error = Program::compile("cel.bind(x, 1, x) == 1", &[]).unwrap_err().to_string();
    assert!(error.contains("undeclared reference to 'bind'"), "{error}");
}

#[test]
fn maps_of_maps_have_an_empty_map_under_every_key() {
    for expression in [
        "device.parts['known'].name == 'a' && device.parts.known.size == 3",
        "device.parts['unknown'].size() == 0 && !('name' in device.parts['unknown'])",
        "!has(device.parts['unknown'].name) && has(device.parts['known'].name)",
        "'known' in device.parts && !('unknown' in device.parts)",
        "device.parts.size() == 1 && device.parts.exists_one(key, key == 'known')",
    ] {
        assert_eq!(of_device(expression), Ok("true".into()), "{expression}");
    }
    assert_eq!(of_device("device.parts['unknown'].name == 'a'"), Err("no such key: name".into()));
}

proptest! {
    /// Whatever is written, compiling and evaluating end without a panic.
    #[test]
    fn nothing_panics(text in "[a-z0-9.()\\[\\]{}+*/%!<>=&|?:,'\" -]{0,40}") {
        let _ = eval(&text, &json!({ "a": 1, "b": [1, 2], "c": { "d": "e" } }));
    }

    #[test]
    fn calls_with_odd_arguments_end(
        function in proptest::sample::select(vec!["substring", "indexOf", "lastIndexOf", "split", "replace", "slice",
            "charAt", "format", "flatten", "findAll", "join", "matches"]),
        target in proptest::sample::select(vec!["'héllo'", "[1, [2]]", "''", "self", "1", "[]"]),
        args in proptest::collection::vec(proptest::sample::select(vec!["-1", "0", "99", "'l'", "''", "[1]", "'%d%s'"]), 0..3),
    ) {
        let _ = eval(&format!("{target}.{function}({})", args.join(", ")), &json!({}));
    }
}

#[test]
fn text_does_not_grow_without_end_and_mixed_lists_have_no_order() {
    let long = json!({ "a": "a".repeat(1 << 20), "many": vec!["x"; 1000] });
    for expression in ["self.a.replace('a', self.a) == ''", "self.many.join(self.a) == ''"] {
        let error = eval(expression, &long).unwrap_err();
        assert_eq!(error, "operation cancelled: actual cost limit exceeded", "{expression}");
    }
    holds("'banana'.replace('an', 'x', 1) == 'bxana'");
    holds("'banana'.replace('an', 'x') == 'bxxa'");
    fails("[1, 'a', 2.0].sort() == []", "no such overload");
    fails("[1, 'a', 2.0].sortBy(x, x) == []", "no such overload");
    holds("[3, 1, 2].sortBy(x, -x) == [3, 2, 1]");
}
