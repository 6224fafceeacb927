//! How Go's `strconv` reads texts, and what it says of those that it cannot read.

/// The boolean of a text. As `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(syntax_problem("ParseBool", text)),
    }
}

/// Why a text is no integer of the wanted size. `function` is the one of `strconv` that has read it.
pub(super) fn number_problem(function: &str, text: &str) -> String {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return syntax_problem(function, text);
    }
    format!("strconv.{function}: parsing {text:?}: value out of range")
}

fn syntax_problem(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_go() {
        assert_eq!(parse_bool("1"), Ok(true));
        assert_eq!(parse_bool("F"), Ok(false));
        assert_eq!(parse_bool("yes").unwrap_err(), "strconv.ParseBool: parsing \"yes\": invalid syntax");
    }

    #[test]
    fn numbers_that_are_too_large_are_told_from_other_texts() {
        let table = [("x", "invalid syntax"), ("", "invalid syntax"), ("-", "invalid syntax")];
        for (text, expected) in table.into_iter().chain([("+99999999999999999999", "value out of range")]) {
            let problem = number_problem("Atoi", text);
            assert_eq!(problem, format!("strconv.Atoi: parsing {text:?}: {expected}"));
        }
    }
}
