//! Writes a condition as SQL.

use super::resolve::{Condition, Operand, Operator, Test};
use crate::model::Table;
use crate::store::{Sql, Value};

/// Appends `condition`, on rows of `table` under the alias `e`.
pub(crate) fn write(sql: &mut Sql, table: Table, condition: &Condition) {
    match condition {
        Condition::All(parts) => join(sql, table, parts, " AND "),
        Condition::Any(parts) => join(sql, table, parts, " OR "),
        Condition::Entity { column, test } => write_test(sql, &format!("e.{}", column.name()), test),
        Condition::Property { name, tests } => {
            // One alias is enough: a subquery sees only its own.
            sql.push("EXISTS (SELECT 1 FROM ");
            sql.table(table.properties());
            sql.push(&format!(" f WHERE f.{} = e.id AND f.name = ", table.owner_column()));
            sql.bind(Value::Text(name.clone()));
            sql.push(" AND (");
            for (index, (column, test)) in tests.iter().enumerate() {
                if index > 0 {
                    sql.push(" OR ");
                }
                write_test(sql, &format!("f.{}", column.name()), test);
            }
            sql.push("))");
        }
    }
}

fn join(sql: &mut Sql, table: Table, parts: &[Condition], word: &str) {
    sql.push("(");
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            sql.push(word);
        }
        write(sql, table, part);
    }
    sql.push(")");
}

fn write_test(sql: &mut Sql, column: &str, test: &Test) {
    match test {
        Test::OneOf(items) if items.is_empty() => sql.push("1 = 0"),
        Test::OneOf(items) => {
            sql.push(&format!("{column} IN ("));
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    sql.push(", ");
                }
                sql.bind(value(item));
            }
            sql.push(")");
        }
        Test::Compare(Operator::Like, Operand::Text(pattern)) => sql.like(column, pattern),
        Test::Compare(Operator::ILike, Operand::Text(pattern)) => sql.like_ignoring_case(column, pattern),
        Test::Compare(operator, operand) => {
            sql.push(&format!("{column} {} ", symbol(*operator)));
            sql.bind(value(operand));
        }
    }
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal | Operator::EqualAsStored | Operator::Like | Operator::ILike | Operator::In => "=",
        Operator::NotEqual => "<>",
        Operator::Greater => ">",
        Operator::GreaterOrEqual => ">=",
        Operator::Less => "<",
        Operator::LessOrEqual => "<=",
    }
}

fn value(operand: &Operand) -> Value {
    match operand {
        Operand::Int(number) => Value::Int(*number),
        Operand::Double(number) => Value::Double(*number),
        Operand::Text(text) => Value::Text(text.clone()),
        Operand::Bool(flag) => Value::Bool(*flag),
    }
}
