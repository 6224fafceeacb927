use serde_json::json;

use super::*;
use crate::path::Path;
use crate::schema::Structural;

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
