#![expect(clippy::needless_pass_by_value, reason = "tables are easier to read so")]

mod due;
mod grammar;
