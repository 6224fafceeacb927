//! The text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use std::str::FromStr;

use super::{Requirement, Selector, SelectorError, Test};

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Reader { rest: text.trim() };
        let mut requirements = Vec::new();
        if reader.rest.is_empty() {
            return Ok(Self { requirements });
        }
        if !reader.is_at_requirement() {
            return Err(reader.expected("!, identifier, or 'end of string'"));
        }
        loop {
            requirements
                .push(reader.requirement().map_err(|error| SelectorError::Requirement(error.into()))?);
            if reader.rest.is_empty() {
                return Ok(Self { requirements });
            }
            reader.take(",").ok_or_else(|| reader.expected("',' or 'end of string'"))?;
            if !reader.is_at_requirement() {
                return Err(reader.expected("identifier after ','"));
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Whether a requirement may begin here: with a key or with `!`.
    fn is_at_requirement(&self) -> bool {
        let begins_a_key = |c: char| !c.is_whitespace() && !"=!<>(),".contains(c);
        self.rest.starts_with(begins_a_key) || (self.rest.starts_with('!') && !self.rest.starts_with("!="))
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.take("!").is_some() {
            return Ok(Requirement { key: self.key()?, test: Test::DoesNotExist });
        }
        let key = self.key()?;
        Ok(Requirement { key, test: self.test()? })
    }

    fn test(&mut self) -> Result<Test, SelectorError> {
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(Test::Exists);
        }
        if self.take("==").is_some() || self.take("=").is_some() {
            return Ok(Test::Is(self.value()?));
        }
        if self.take("!=").is_some() {
            return Ok(Test::IsNot(self.value()?));
        }
        if self.take(">").is_some() {
            return Ok(Test::GreaterThan(self.integer()?));
        }
        if self.take("<").is_some() {
            return Ok(Test::LessThan(self.integer()?));
        }
        let before = self.rest;
        match self.word() {
            "in" => Ok(Test::In(self.values()?)),
            "notin" => Ok(Test::NotIn(self.values()?)),
            _ => {
                self.rest = before;
                Err(self.expected("in, notin, =, ==, !=, gt, lt"))
            }
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        self.take("(").ok_or_else(|| self.expected("'('"))?;
        let mut values = Vec::new();
        loop {
            values.push(self.word().to_owned());
            if self.take(")").is_some() {
                return Ok(values);
            }
            self.take(",").ok_or_else(|| self.expected("',' or ')'"))?;
        }
    }

    /// A value; nothing at all is one, but an operator is not.
    fn value(&mut self) -> Result<String, SelectorError> {
        let word = self.word();
        let is_complete = !word.is_empty() || self.rest.is_empty() || self.rest.starts_with(',');
        if is_complete { Ok(word.to_owned()) } else { Err(self.expected("identifier")) }
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        match self.word() {
            "" => Err(self.expected("identifier")),
            key => Ok(key.to_owned()),
        }
    }

    fn integer(&mut self) -> Result<i64, SelectorError> {
        let before = self.rest;
        self.word().parse().map_err(|_| {
            self.rest = before;
            self.expected("integer")
        })
    }

    /// The characters up to the next delimiter; perhaps none.
    fn word(&mut self) -> &'a str {
        let is_delimiter = |c: char| c.is_whitespace() || "=!<>(),".contains(c);
        let end = self.rest.find(is_delimiter).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?.trim_start();
        Some(())
    }

    fn expected(&self, expected: &'static str) -> SelectorError {
        let operators = ["==", "!=", "=", "!", "<", ">", "(", ")", ","];
        let operator = operators.into_iter().find(|operator| self.rest.starts_with(operator));
        let found = operator.unwrap_or_else(|| Reader { rest: self.rest }.word());
        SelectorError::Text { found: found.into(), expected }
    }
}
