//! Queries against a slow evaluator that follows the documented rules entity by entity.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Condition, Expression, FilterError, Literal, Operator, parse, pattern, resolve};
use crate::model::{Entity, Kind, Property, PropertyValue};
use crate::store::{Database, Location, Query};

fn syntax_error(query: &str) -> String {
    match parse(query) {
        Err(FilterError::Syntax(why)) => why,
        other => panic!("{query}: {other:?}"),
    }
}

#[test]
fn words_are_identifiers_where_an_identifier_is_expected() {
    assert!(syntax_error("name = \"a\" OR OR name = \"b\"").contains("1:18: unexpected token \"name\""));
    assert!(syntax_error("name = null").contains("(expected Value). Hint"));
    assert!(syntax_error("()").contains("unexpected token \")\" (expected Expression \")\")"));
    assert!(syntax_error("name = 1e").contains("1:9: unexpected token \"e\". Check"));
}

#[test]
fn a_term_that_fails_at_its_start_in_parentheses_did_not_follow() {
    let cases = [
        // Outside of parentheses, the deepest error is told.
        (r#"name = "a" AND source like "b""#, r#"1:23: unexpected token "like""#),
        (r#"(name = "a" AND source like "b")"#, r#"1:13: unexpected token "AND" (expected ")")"#),
        (r#"(name = "a" OR)"#, r#"1:13: unexpected token "OR" (expected ")")"#),
        (r#"(name = "a" AND (source like "b"))"#, r#"1:13: unexpected token "AND" (expected ")")"#),
        // Terms of which more was read are told.
        (r#"(name = "a" AND source = )"#, r#"1:26: unexpected token ")" (expected Value)"#),
        (r#"(name = "a" AND a.b like "b")"#, r#"1:21: unexpected token "like""#),
        (r#"(source like "b")"#, r#"1:9: unexpected token "like""#),
    ];
    for (query, expected) in cases {
        let error = syntax_error(query);
        assert!(error.contains(expected), "{query}: {error}");
    }
}

fn resolved(query: &str, kind: Kind) -> Result<Condition, FilterError> {
    resolve(&parse(query).expect("it can be read").expect("a filter"), kind)
}

#[test]
fn a_list_of_one_is_a_pattern_and_an_empty_one_fits_nothing() {
    let kind = Kind::ModelVersion;
    assert_eq!(resolved(r#"team LIKE ("a%")"#, kind), resolved(r#"team LIKE "a%""#, kind));
    assert_eq!(resolved(r#"team ILIKE ("a%")"#, kind), resolved(r#"team ILIKE "a%""#, kind));
    assert_eq!(resolved("team LIKE ()", kind), resolved("team IN ()", kind));
    assert_eq!(resolved(r#"team LIKE ("a", "b")"#, kind), Err(FilterError::TypeMismatch));
}

#[test]
fn angles_compare_with_the_name_as_it_is_stored() {
    assert_ne!(resolved(r#"name <> "a""#, Kind::ModelVersion), resolved(r#"name = "a""#, Kind::ModelVersion));
    assert_eq!(
        resolved(r#"name <> "a""#, Kind::RegisteredModel),
        resolved(r#"name = "a""#, Kind::RegisteredModel)
    );
}

#[test]
fn deep_groups_do_not_exhaust_the_stack() {
    let query = |depth| format!("{}id = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&query(100_000)).is_ok());
    let alternating =
        |depth| format!("{}id = 1{}", "(id = 1 OR id = 2 AND ".repeat(depth), ")".repeat(depth));
    assert!(parse(&alternating(40)).is_ok());
    assert!(syntax_error(&alternating(200)).contains("fewer nested groups"));
    let long = vec!["id = 1"; 501].join(" AND ");
    assert!(syntax_error(&long).contains("fewer comparisons"));
}

#[test]
fn like_takes_the_character_behind_a_backslash_literally() {
    assert!(pattern::matches("%100\\%%", "it's 100% so"));
    assert!(!pattern::matches("100\\%", "100x"));
    assert!(pattern::matches("a%b%c", "a-b-b-c"));
    assert!(!pattern::matches("", "a"));
    assert_eq!(pattern::literal("a\\_b"), Some("a_b".to_owned()));
    assert_eq!(pattern::literal("a_b"), None);
}

/// Names that queries use: columns, a built-in property, and custom ones of each type and of none.
const NAMES: [&str; 8] = ["id", "name", "externalId", "owner", "text", "number", "flag", "absent"];
const TEXTS: [&str; 6] = ["", "a", "ab", "B", "100%", "a_b"];

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        proptest::sample::select(&TEXTS[..]).prop_map(|text| Literal::Text(text.to_owned())),
        (-2_i64..8).prop_map(Literal::Int),
        proptest::sample::select(&[0.5, 1.0, 2.5, -1.5][..]).prop_map(Literal::Float),
        any::<bool>().prop_map(Literal::Bool),
    ]
}

fn comparison() -> impl Strategy<Value = Expression> {
    let operators = [
        Operator::Equal,
        Operator::EqualAsStored,
        Operator::NotEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Like,
        Operator::ILike,
    ];
    let single =
        (proptest::sample::select(&NAMES[..]), proptest::sample::select(operators.to_vec()), literal());
    let list = (proptest::sample::select(&NAMES[..]), proptest::collection::vec(literal(), 0..3));
    prop_oneof![
        4 => single.prop_map(|(name, operator, value)| Expression::Comparison { property: name.to_owned(), operator, value }),
        1 => list.prop_map(|(name, items)| Expression::Comparison {
            property: name.to_owned(),
            operator: Operator::In,
            value: Literal::List(items),
        }),
    ]
}

fn expression() -> impl Strategy<Value = Expression> {
    comparison().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Expression::And),
            proptest::collection::vec(inner, 2..4).prop_map(Expression::Or),
        ]
    })
}

/// The query text of an expression.
fn write(expression: &Expression) -> String {
    let join = |parts: &[Expression], word: &str| {
        let parts: Vec<String> = parts.iter().map(|part| format!("({})", write(part))).collect();
        parts.join(word)
    };
    match expression {
        Expression::And(parts) => join(parts, " AND "),
        Expression::Or(parts) => join(parts, " OR "),
        Expression::Comparison { property, operator, value } => {
            let operator = match operator {
                Operator::Equal => "=",
                Operator::EqualAsStored => "<>",
                Operator::NotEqual => "!=",
                Operator::Greater => ">",
                Operator::GreaterOrEqual => ">=",
                Operator::Less => "<",
                Operator::LessOrEqual => "<=",
                Operator::Like => "LIKE",
                Operator::ILike => "ILIKE",
                Operator::In => "IN",
            };
            format!("{property} {operator} {}", write_literal(value))
        }
    }
}

fn write_literal(value: &Literal) -> String {
    match value {
        Literal::Text(text) => format!("\"{text}\""),
        Literal::Int(number) => number.to_string(),
        Literal::Float(number) => format!("{number:?}"),
        Literal::Bool(flag) => flag.to_string(),
        Literal::List(items) => {
            format!("({})", items.iter().map(write_literal).collect::<Vec<_>>().join(", "))
        }
    }
}

fn entity(
    name: String,
    external: Option<&str>,
    owner: Option<&str>,
    custom: Vec<(&str, PropertyValue)>,
) -> Entity {
    let owner = owner.map(|owner| ("owner", false, PropertyValue::Text(owner.to_owned())));
    let custom = custom.into_iter().map(|(name, value)| (name, true, value));
    let properties = owner.into_iter().chain(custom);
    Entity {
        kind: Kind::RegisteredModel,
        id: 0,
        name: Some(name),
        external_id: external.map(str::to_owned),
        created: 1,
        updated: 1,
        uri: None,
        state: None,
        properties: properties
            .map(|(name, is_custom, value)| Property { name: name.to_owned(), is_custom, value })
            .collect(),
    }
}

fn entities() -> Vec<Entity> {
    let text = |text: &str| PropertyValue::Text(text.to_owned());
    vec![
        entity(
            "a".into(),
            Some("ab"),
            Some("a"),
            vec![("text", text("ab")), ("number", PropertyValue::Int(1))],
        ),
        entity(
            "ab".into(),
            None,
            Some("B"),
            vec![("text", text("")), ("number", PropertyValue::Double(1.0))],
        ),
        entity(
            "B".into(),
            Some(""),
            None,
            vec![("flag", PropertyValue::Bool(true)), ("number", PropertyValue::Double(2.5))],
        ),
        entity(
            "100%".into(),
            Some("a"),
            Some(""),
            vec![("flag", PropertyValue::Bool(false)), ("text", text("100%"))],
        ),
        entity(
            "a_b".into(),
            Some("B"),
            Some("ab"),
            vec![("number", PropertyValue::Int(-2)), ("text", text("a_b"))],
        ),
        entity(String::new(), None, None, vec![("number", text("1")), ("text", PropertyValue::Int(5))]),
    ]
}

/// A value an entity has under a name.
enum Found {
    Int(i64),
    Double(f64),
    Text(String),
    Bool(bool),
}

/// What an entity has under a name: a column, or properties of any type.
fn values(entity: &Entity, name: &str) -> Vec<Found> {
    match name {
        "id" => vec![Found::Int(i64::from(entity.id))],
        "name" => entity.name.clone().map(Found::Text).into_iter().collect(),
        "externalId" => entity.external_id.clone().map(Found::Text).into_iter().collect(),
        _ => {
            let properties = entity.properties.iter().filter(|property| property.name == name);
            let found = properties.map(|property| match &property.value {
                PropertyValue::Int(number) => Found::Int(i64::from(*number)),
                PropertyValue::Double(number) => Found::Double(*number),
                PropertyValue::Text(text) => Found::Text(text.clone()),
                PropertyValue::Bool(flag) => Found::Bool(*flag),
                PropertyValue::Bytes(_) => unreachable!("none here"),
            });
            found.collect()
        }
    }
}

/// The slow evaluator; `None` if a literal does not fit a column.
fn evaluate(expression: &Expression, entity: &Entity) -> Option<bool> {
    match expression {
        Expression::And(parts) => {
            let results: Option<Vec<bool>> = parts.iter().map(|part| evaluate(part, entity)).collect();
            Some(results?.into_iter().all(|it| it))
        }
        Expression::Or(parts) => {
            let results: Option<Vec<bool>> = parts.iter().map(|part| evaluate(part, entity)).collect();
            Some(results?.into_iter().any(|it| it))
        }
        Expression::Comparison { property, operator, value } => compare(entity, property, *operator, value),
    }
}

fn compare(entity: &Entity, name: &str, operator: Operator, value: &Literal) -> Option<bool> {
    let is_text_column = matches!(name, "name" | "externalId" | "owner");
    let items = match value {
        Literal::List(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    let is_pattern = matches!(operator, Operator::Like | Operator::ILike);
    // A list is looked for among texts, whatever it holds.
    let needs_text = is_text_column || is_pattern || matches!(value, Literal::List(_));
    for item in items {
        let fits = match item {
            Literal::Text(text) if name == "id" => !is_pattern && text.trim().parse::<i32>().is_ok(),
            Literal::Text(_) => true,
            Literal::Int(_) | Literal::Float(_) => name == "id" && !is_pattern || !needs_text,
            Literal::Bool(_) => name != "id" && !needs_text,
            Literal::List(_) => false,
        };
        if !fits {
            return None;
        }
    }
    let found = values(entity, name);
    Some(found.iter().any(|found| items.iter().any(|item| holds(name, found, operator, item))))
}

/// The values of these tests are small.
fn integer(value: f64) -> i64 {
    format!("{:.0}", value.trunc()).parse().expect("a small number")
}

fn double(value: i64) -> f64 {
    f64::from(i32::try_from(value).expect("a small number"))
}

fn holds(name: &str, found: &Found, operator: Operator, value: &Literal) -> bool {
    let order = match (found, value) {
        (Found::Text(text), Literal::Text(pattern)) if operator == Operator::Like => {
            return pattern::matches(pattern, text);
        }
        (Found::Text(text), Literal::Text(pattern)) if operator == Operator::ILike => {
            return pattern::matches(&pattern.to_lowercase(), &text.to_lowercase());
        }
        (Found::Text(text), Literal::Text(value)) => text.as_bytes().partial_cmp(value.as_bytes()),
        (Found::Int(number), Literal::Int(value)) => number.partial_cmp(value),
        (Found::Int(number), Literal::Float(value)) if name == "id" => number.partial_cmp(&integer(*value)),
        (Found::Double(number), Literal::Int(value)) => number.partial_cmp(&double(*value)),
        (Found::Double(number), Literal::Float(value)) => number.partial_cmp(value),
        (Found::Bool(flag), Literal::Bool(value)) => flag.partial_cmp(value),
        _ => None,
    };
    let Some(order) = order else { return false };
    match operator {
        Operator::Equal | Operator::EqualAsStored | Operator::In => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Like | Operator::ILike => false,
    }
}

#[tokio::test]
async fn a_filter_selects_what_the_slow_evaluator_selects() {
    let directory = tempfile::tempdir().expect("a directory");
    let database =
        Database::open(&Location::Sqlite(directory.path().join("registry"))).await.expect("it opens");
    let types = database.types.clone();
    let stored = database
        .write(move |session| {
            Box::pin(async move {
                let mut stored = Vec::new();
                for entity in entities() {
                    stored.push(session.insert(&types, entity, None).await?);
                }
                Ok(stored)
            })
        })
        .await
        .expect("they are stored");
    let mut runner = TestRunner::new(Config { cases: 2000, ..Config::default() });
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        runner.run(&expression(), |expression| {
            let text = write(&expression);
            let parsed = parse(&text).expect("it is well-formed").expect("it is not blank");
            prop_assert_eq!(write(&parsed), text.clone());
            let expected: Option<Vec<i32>> = stored
                .iter()
                .map(|entity| evaluate(&expression, entity).map(|holds| holds.then_some(entity.id)))
                .collect::<Option<Vec<_>>>()
                .map(|ids| ids.into_iter().flatten().collect());
            let actual = match resolve(&parsed, Kind::RegisteredModel) {
                Err(FilterError::TypeMismatch) => None,
                Err(other) => panic!("{other:?}"),
                Ok(condition) => {
                    let mut query = Query::new(&[Kind::RegisteredModel]);
                    query.condition = Some(condition);
                    let (types, database) = (database.types.clone(), database.clone());
                    let found = handle.block_on(database.read(move |session| {
                        Box::pin(async move { Ok(session.list(&types, &query).await?) })
                    }));
                    Some(found.expect("it runs").iter().map(|entity| entity.id).collect::<Vec<_>>())
                }
            };
            prop_assert_eq!(actual, expected, "{}", text);
            Ok(())
        })
    })
    .await
    .expect("it runs")
    .expect("both agree");
}
