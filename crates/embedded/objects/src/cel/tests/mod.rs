use std::cell::Cell;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::path::Path;
use crate::schema::Structural;

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

#[test]
fn conditions_explain_their_errors() {
    let condition =
        Condition::compile("c", "object.metadata.name == 'a' && request.operation != 'DELETE'").unwrap();
    let (object, request) = (json!({ "metadata": { "name": "a" } }), json!({ "operation": "CREATE" }));
    assert_eq!(condition.holds(&[("object", &object), ("request", &request)]), Ok(true));
    let broken = Condition::compile("c", "object.nope == 1").unwrap();
    assert_eq!(
        broken.holds(&[("object", &object)]),
        Err("expression 'object.nope == 1' resulted in error: no such key: nope".into())
    );
}

#[test]
fn every_rule_of_our_own_kinds_compiles() {
    let mut count = 0;
    for kind in quintet_api::crd::kinds() {
        let schema = (kind.schema)();
        if let Err(errors) = Structural::parse(&schema, &Path::ROOT) {
            panic!("{} {}: {}", kind.api_version, kind.name, crate::error::aggregate(&errors));
        }
        count += schema.to_string().matches("x-kubernetes-validations").count();
    }
    assert!(count > 50, "only {count} places with rules");
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

/// A schema with a bit of everything.
fn typed() -> Structural {
    let schema = json!({ "type": "object", "properties": {
        "n": { "type": "integer" }, "s": { "type": "string" }, "b": { "type": "boolean" }, "d": { "type": "number" },
        "at": { "type": "string", "format": "date-time" }, "for": { "type": "string", "format": "duration" },
        "either": { "x-kubernetes-int-or-string": true },
        "list": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } } } },
        "map": { "type": "object", "additionalProperties": { "type": "integer" } },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "a-b": { "type": "integer" },
        "inner": { "type": "object", "properties": {
            "n": { "type": "integer" }, "numbers": { "type": "array", "items": { "type": "integer" } } } },
    } });
    Structural::parse(&schema, &Path::ROOT).unwrap()
}

fn mistake(rule: &str) -> Option<String> {
    let rule = Rule::parse(&json!({ "rule": rule }), &Path::ROOT).unwrap();
    rule.type_errors(&typed(), false, &Path::ROOT).into_iter().next().map(|error| error.detail)
}

#[test]
fn what_can_be_evaluated_is_not_refused() {
    for rule in [
        "self.n > 1 && self.d > 1 && self.n < self.d",
        "self.s == 'a' || self.s in ['a', 'b'] || self.s == null",
        "has(self.at) && self.at > timestamp('2026-01-01T00:00:00Z') && self.at + self.__for__ > self.at",
        "self.either == 1 || self.either == 'a' || int(self.either) > 1",
        "self.list.all(one, one.name.startsWith('a')) && self.list[0].name.size() > 1",
        "self.list.filter(one, one.name != '').map(one, one.name).join(',') != ''",
        "self.map.all(key, self.map[key] > 1 && key != 'a') && self.map.x == 1",
        "self.free.anything.at.all > 1",
        "self.a__dash__b == 1",
        "self.?s.orValue('') == ''",
        "oldSelf.n <= self.n",
        "self.b ? self.n == 1 : self.s == 'x'",
        "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        "self.list.exists_one(one, one.name == 'a') && size(self.list) > 0 && self.s.size() < 9",
        "self.list == [] && self.map == {}",
        "self.?inner.n.optMap(n, n > 0).orValue(true) && self.?inner.n == self.?n",
        "self.?inner.numbers.optMap(l, size(l) > 0).orValue(true)",
        "[?self.?s].all(x, x.startsWith('a')) && {?'k': self.?n}.all(k, k == 'k')",
        "{1: 'a'}.all(k, k > 0) && self.list.transformMap(i, v, v.name).all(i, i >= 0)",
        "[1, 2].sum() == 3 && self.s.split(',').size() == 1",
    ] {
        assert_eq!(mistake(rule), None, "{rule}");
    }
}

#[test]
fn what_can_never_be_evaluated_is_refused_with_its_place() {
    for (rule, message) in [
        ("self.n > 1 && self.nope", "compilation failed: ERROR: <input>:1:19: undefined field 'nope'"),
        (
            "self.list.all(one, one.nope == 1)",
            "compilation failed: ERROR: <input>:1:23: undefined field 'nope'",
        ),
        (
            "self.n == 'a'",
            "compilation failed: ERROR: <input>:1:1: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        ("self.n && self.b", "compilation failed: ERROR: <input>:1:1: expected type 'bool' but found 'int'"),
        (
            "self.n.all(x, true)",
            "compilation failed: ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        (
            "size(self.n) == 1",
            "compilation failed: ERROR: <input>:1:1: found no matching overload for 'size' applied to '(int)'",
        ),
        (
            "self.n in self.s",
            "compilation failed: ERROR: <input>:1:1: found no matching overload for '@in' applied to '(int, string)'",
        ),
        ("self.s", "compilation failed: must evaluate to a bool"),
    ] {
        assert_eq!(mistake(rule).as_deref(), Some(message), "{rule}");
    }
}
