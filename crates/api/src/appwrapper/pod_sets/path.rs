//! Paths into the template of a component: `template.spec.workerGroupSpecs[0].template`.

use serde_json::Value;

/// Every path begins with it: the template itself.
const ROOT: &str = "template";

/// One step of a path.
enum Element<'a> {
    Field(&'a str),
    Index(i64),
}

/// The value at a path.
///
/// # Errors
///
/// Names the position that the path does not lead beyond.
pub fn at_path<'a>(template: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut cursor = template;
    walk(path, |position, element| -> Result<(), String> {
        cursor = match element {
            Element::Field(name) => {
                let fields = cursor.as_object();
                let fields = fields.ok_or_else(|| format!("at path position '{position}' non-map value"))?;
                fields
                    .get(name)
                    .ok_or_else(|| format!("at path position '{position}' missing field '{name}'"))?
            }
            Element::Index(index) => {
                let items = cursor.as_array();
                let items =
                    items.ok_or_else(|| format!("at path position '{position}' found non-array value"))?;
                usize::try_from(index)
                    .ok()
                    .and_then(|index| items.get(index))
                    .ok_or_else(|| format!("at path position '{position}' out of bounds index '{index}'"))?
            }
        };
        Ok(())
    })?;
    Ok(cursor)
}

/// The value at a path, to change it. `None` where [`at_path`] has an error.
pub fn at_path_mut<'a>(template: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut pointer = String::new();
    let walked = walk(path, |_, element| {
        match element {
            Element::Field(name) => {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
            Element::Index(index) => pointer.extend(["/", &index.to_string()]),
        }
        Ok(())
    });
    walked.ok()?;
    template.pointer_mut(&pointer)
}

/// Calls `visit` with the position and every element after the root. Elements end where upstream's `getValueAtPath` lets
/// them end, and positions are as it prints them: without the brackets that close an index.
fn walk<'a>(
    path: &'a str,
    mut visit: impl FnMut(&str, Element<'a>) -> Result<(), String>,
) -> Result<(), String> {
    let not_a_template = || "first element of the path must be 'template'".to_owned();
    let mut rest = path.strip_prefix(ROOT).ok_or_else(not_a_template)?;
    let mut position = ROOT.to_owned();
    while !rest.is_empty() {
        if let Some(expression) = rest.strip_prefix('[') {
            let (text, after) = expression
                .split_once(']')
                .ok_or_else(|| format!("at path position '{position}' invalid array index '{rest}'"))?;
            let index = text
                .parse()
                .map_err(|_| format!("at path position '{position}' invalid index expression '{text}'"))?;
            visit(&position, Element::Index(index))?;
            position.extend(["[", text]);
            rest = after;
        } else if let Some(field) = rest.strip_prefix('.') {
            position.push('.');
            let (name, after) = field.split_at(end_of_field(field));
            visit(&position, Element::Field(name))?;
            position.push_str(name);
            rest = after;
        } else {
            return Err(format!("at path position '{position}' invalid path element '{rest}'"));
        }
    }
    Ok(())
}

/// A field ends before the first dot or bracket that is not its first character.
fn end_of_field(field: &str) -> usize {
    let first = |sign: char| field.find(sign).filter(|at| *at > 0).unwrap_or(field.len());
    first('.').min(first('['))
}
