//! Where in an object something is: built on the stack while walking, printed only when there is something to say.

use std::fmt;

/// A step-by-step path into an object. Steps borrow their parent, so that walking costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself; prints as nothing.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A path that starts with a field.
    pub const fn new(field: &'a str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    /// A field of an object: `.name`. Several dotted names may be given at once.
    pub const fn field<'b>(&'b self, name: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// An item of a list: `[2]`.
    pub const fn index<'b>(&'b self, index: usize) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// A value of a map: `[key]`.
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = Vec::new();
        let mut here = Some(self);
        while let Some(path) = here {
            steps.push(path.step);
            here = path.parent;
        }
        let mut is_first = true;
        for step in steps.into_iter().rev() {
            match step {
                Step::Root => continue,
                Step::Field(name) if is_first => out.write_str(name)?,
                Step::Field(name) => write!(out, ".{name}")?,
                Step::Index(index) => write!(out, "[{index}]")?,
                Step::Key(key) => write!(out, "[{key}]")?,
            }
            is_first = false;
        }
        Ok(())
    }
}
