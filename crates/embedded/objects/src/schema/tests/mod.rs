use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(schema: Value) -> Structural {
    Structural::parse(&schema, &Path::new("spec.validation.openAPIV3Schema"))
        .unwrap_or_else(|errors| panic!("{}", crate::error::aggregate(&errors)))
}

fn with_spec(spec: Value) -> Structural {
    parse(json!({ "type": "object", "properties": { "spec": spec } }))
}

fn errors(schema: &Structural, spec: Value) -> Vec<String> {
    texts(&schema.validate(&json!({ "spec": spec }), None))
}

fn texts(verdict: &Verdict) -> Vec<String> {
    verdict.errors.iter().map(ToString::to_string).collect()
}

fn problems(spec: Value) -> Vec<String> {
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let errors = Structural::parse(&schema, &Path::new("spec.validation.openAPIV3Schema")).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn values_are_checked_with_the_words_clients_know() {
    let schema = with_spec(json!({ "type": "object", "required": ["a"], "properties": {
        "a": { "type": "string", "minLength": 2, "maxLength": 4, "pattern": "^a+$" },
        "e": { "type": "string", "enum": ["a", "b"] },
        "n": { "type": "integer", "minimum": 0, "maximum": 10, "multipleOf": 2 },
        "l": { "type": "array", "items": { "type": "string" }, "maxItems": 2, "minItems": 1 },
        "m": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
               "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "string" } } } },
        "t": { "type": "string", "format": "date-time" },
        "p": { "x-kubernetes-int-or-string": true }
    } }));
    let check = |spec, text: &str| assert_eq!(errors(&schema, spec), [text]);
    check(json!({}), "spec.a: Required value");
    check(
        json!({ "a": 1 }),
        "spec.a: Invalid value: \"integer\": spec.a in body must be of type string: \"integer\"",
    );
    check(
        json!({ "a": "a" }),
        "spec.a: Invalid value: \"a\": spec.a in body should be at least 2 chars long",
    );
    check(json!({ "a": "aaaaa" }), "spec.a: Too long: may not be more than 4 bytes");
    check(json!({ "a": "bb" }), "spec.a: Invalid value: \"bb\": spec.a in body should match '^a+$'");
    check(json!({ "a": "aa", "e": "g" }), "spec.e: Unsupported value: \"g\": supported values: \"a\", \"b\"");
    check(
        json!({ "a": "aa", "n": -2 }),
        "spec.n: Invalid value: -2: spec.n in body should be greater than or equal to 0",
    );
    check(
        json!({ "a": "aa", "n": 12 }),
        "spec.n: Invalid value: 12: spec.n in body should be less than or equal to 10",
    );
    check(json!({ "a": "aa", "n": 3 }), "spec.n: Invalid value: 3: spec.n in body should be a multiple of 2");
    check(json!({ "a": "aa", "l": ["x", "y", "z"] }), "spec.l: Too many: 3: must have at most 2 items");
    check(
        json!({ "a": "aa", "l": [] }),
        "spec.l: Invalid value: 0: spec.l in body should have at least 1 items",
    );
    check(
        json!({ "a": "aa", "m": [{ "k": "x" }, { "k": "x" }] }),
        "spec.m[1]: Duplicate value: {\"k\":\"x\"}",
    );
    check(
        json!({ "a": "aa", "t": "zz" }),
        "spec.t: Invalid value: \"zz\": spec.t in body must be of type date-time: \"zz\"",
    );
    check(
        json!({ "a": "aa", "p": 1.5 }),
        "spec.p: Invalid value: \"number\": spec.p in body must be of type integer,string: \"number\"",
    );
    assert!(errors(&schema, json!({ "a": "aa", "p": "50%", "n": 4.0 })).is_empty());
}

#[test]
fn structural_rules_are_enforced() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    assert_eq!(
        problems(json!({ "type": "object", "properties": { "a": {} } })),
        [format!("{at}.properties[a].type: Required value: must not be empty for specified object fields")]
    );
    assert_eq!(
        problems(json!({ "type": "array" })),
        [format!("{at}.items: Required value: must be specified")]
    );
    assert!(
        problems(json!({ "type": "object", "anyOf": [{ "type": "string" }] }))[0]
            .contains("must be empty to be structural")
    );
    assert!(
        problems(
            json!({ "type": "object", "properties": { "a": { "type": "object", "default": { "b": 1 } } } })
        )[0]
        .contains("must not have unknown fields")
    );
    assert!(problems(json!({ "type": "string", "default": 1 }))[0].contains("must be of type string"));
    assert!(problems(json!({ "type": "object", "$ref": "x" }))[0].contains("Forbidden"));
    with_spec(
        json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
    );
}

#[test]
fn unknown_fields_go_and_defaults_come() {
    let schema = with_spec(json!({ "type": "object", "default": {}, "properties": {
        "a": { "type": "string", "default": "x" },
        "n": { "type": "string", "nullable": true },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": { "type": "object", "properties": { "z": { "type": "integer" } } } } },
        "embedded": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": { "spec": { "type": "object" } } },
        "list": { "type": "array", "items": { "type": "object", "properties": { "d": { "type": "integer", "default": 7 } } } },
        "map": { "type": "object", "additionalProperties": { "type": "object", "properties": { "d": { "type": "integer", "default": 8 } } } },
        "absent": { "type": "object", "properties": { "d": { "type": "integer", "default": 9 } } }
    } }));
    let mut object = json!({ "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "n", "odd": 1 }, "bogus": 1, "spec": {
        "a": null, "n": null, "bad": 1, "free": { "any": [1], "known": { "z": 1, "y": 2 } },
        "embedded": { "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": { "q": 1 } },
        "list": [{ "x": 1 }], "map": { "k": {} }
    } });
    assert_eq!(
        schema.prune(&mut object),
        ["bogus", "spec.bad", "spec.embedded.spec.q", "spec.free.known.y", "spec.list[0].x"]
    );
    schema.apply_defaults(&mut object);
    assert_eq!(
        object["spec"],
        json!({ "a": "x", "n": null, "free": { "any": [1], "known": { "z": 1 } },
            "embedded": { "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {} },
            "list": [{ "d": 7 }], "map": { "k": { "d": 8 } } })
    );
    let mut empty = json!({});
    schema.apply_defaults(&mut empty);
    assert_eq!(empty["spec"], json!({ "a": "x" }));
}

#[test]
fn what_was_wrong_before_is_forgiven() {
    let schema = with_spec(json!({ "type": "object", "properties": {
        "a": { "type": "integer", "maximum": 5 }, "b": { "type": "integer" },
        "c": { "type": "string", "x-kubernetes-validations": [{ "rule": "self != 'red'", "message": "no red" }] },
        "l": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "string" }, "v": { "type": "integer", "maximum": 5 } } } }
    } }));
    let old = json!({ "spec": { "a": 9, "b": 1, "c": "red", "l": [{ "k": "x", "v": 9 }] } });
    let new = json!({ "spec": { "a": 9, "b": 2, "c": "red", "l": [{ "k": "y" }, { "k": "x", "v": 9 }] } });
    let verdict = schema.validate(&new, Some(&old));
    assert!(verdict.errors.is_empty(), "{verdict:?}");
    assert_eq!(verdict.warnings, ["spec.c: Invalid value: \"red\": no red"]);
    assert_eq!(schema.validate(&new, None).errors.len(), 3);
}

#[test]
fn rules_see_old_values_and_say_what_they_mean() {
    let schema = with_spec(json!({ "type": "object",
        "x-kubernetes-validations": [
            { "rule": "self.replicas <= self.max", "message": "replicas must not exceed max" },
            { "rule": "self.imm == oldSelf.imm", "message": "is immutable", "fieldPath": ".imm", "reason": "FieldValueForbidden" },
            { "rule": "self.max < 100", "messageExpression": "'max is ' + string(self.max)" }
        ],
        "properties": { "replicas": { "type": "integer" }, "max": { "type": "integer",
            "x-kubernetes-validations": [{ "rule": "self != 13" }] }, "imm": { "type": "string" } } }));
    let good = json!({ "spec": { "replicas": 1, "max": 5, "imm": "a" } });
    assert_eq!(schema.validate(&good, None), Verdict::default());
    assert_eq!(
        errors(&schema, json!({ "replicas": 9, "max": 5 })),
        ["spec: Invalid value: replicas must not exceed max"]
    );
    assert_eq!(errors(&schema, json!({ "replicas": 1, "max": 200 })), ["spec: Invalid value: max is 200"]);
    assert_eq!(
        errors(&schema, json!({ "replicas": 1, "max": 13 })),
        ["spec.max: Invalid value: 13: failed rule: self != 13"]
    );
    assert_eq!(
        errors(&schema, json!({ "max": 5 })),
        [
            "spec: Invalid value: \"object\": no such key: replicas evaluating rule: replicas must not exceed max"
        ]
    );
    let changed = json!({ "spec": { "replicas": 1, "max": 5, "imm": "b" } });
    assert_eq!(texts(&schema.validate(&changed, Some(&good))), ["spec.imm: Forbidden: is immutable"]);
    let blocked = errors(&schema, json!({ "replicas": "x", "max": 5 }));
    assert_eq!(blocked.len(), 2);
    assert!(blocked[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
}

#[test]
fn optional_old_self_runs_on_create() {
    let schema = with_spec(json!({ "type": "string", "x-kubernetes-validations": [
        { "rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": true, "message": "must start as new" }] }));
    assert_eq!(errors(&schema, json!("old")), ["spec: Invalid value: \"old\": must start as new"]);
    assert!(schema.validate(&json!({ "spec": "old" }), Some(&json!({ "spec": "new" }))).errors.is_empty());
}

#[test]
fn transition_rules_need_something_to_compare_with() {
    let error = problems(json!({ "type": "array", "items": { "type": "string",
        "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] } }));
    assert!(
        error[0].contains("oldSelf cannot be used on the uncorrelatable portion of the schema"),
        "{error:?}"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-z]{0,3}".prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(
                "[a-h]|spec|metadata|type|properties|items|required|default|x-kubernetes-list-type",
                inner,
                0..4
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any JSON is a schema or a list of reasons why not.
    #[test]
    fn any_schema_is_read_or_refused(schema in any_json()) {
        let _ = Structural::parse(&schema, &Path::ROOT);
    }

    /// Our own kinds meet anything at all: never a panic, and pruned objects have nothing left to prune.
    #[test]
    fn any_object_is_pruned_and_judged(spec in any_json(), at in 0_usize..40) {
        let kinds = quintet_api::crd::kinds();
        let kind = &kinds[at % kinds.len()];
        let schema = parse((kind.schema)());
        let mut object = json!({ "apiVersion": kind.api_version, "kind": kind.name, "metadata": {}, "spec": spec });
        schema.prune(&mut object);
        prop_assert!(schema.unknown_fields(&object).is_empty());
        schema.apply_defaults(&mut object);
        let once = object.clone();
        schema.apply_defaults(&mut object);
        prop_assert_eq!(&object, &once);
        let _ = schema.validate(&object, None);
        prop_assert!(schema.validate(&object, Some(&object)).errors.iter().all(|error| error.path == "<nil>" || !error.detail.contains("in body")));
    }
}
