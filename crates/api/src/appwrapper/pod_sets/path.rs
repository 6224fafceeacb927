//! Paths into the template of a component: `template.spec.workerGroupSpecs[0].template`.

use serde_json::Value;

/// Every path begins with it: the template itself.
const ROOT: &str = "template";

/// One step of a path.
enum Element<'a> {
    Field(&'a str),
    Index(usize),
}

/// The value at a path.
///
/// # Errors
///
/// Names the position that the path does not lead beyond.
pub fn at_path<'a>(template: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut cursor = template;
    walk(path, |position, element| {
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
                items
                    .get(index)
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

/// Calls `visit` with the position and every element after the root.
fn walk<'a>(
    path: &'a str,
    mut visit: impl FnMut(&'a str, Element<'a>) -> Result<(), String>,
) -> Result<(), String> {
    let not_a_template = || "first element of the path must be 'template'".to_owned();
    let mut rest = path.strip_prefix(ROOT).ok_or_else(not_a_template)?;
    // What was read so far, always a prefix of the path.
    let position = |rest: &str| path.get(..path.len() - rest.len()).unwrap_or(path);
    while !rest.is_empty() {
        let here = position(rest);
        if let Some(expression) = rest.strip_prefix('[') {
            let (text, after) = expression
                .split_once(']')
                .ok_or_else(|| format!("at path position '{here}' invalid array index '{rest}'"))?;
            let index: i64 = text
                .parse()
                .map_err(|_| format!("at path position '{here}' invalid index expression '{text}'"))?;
            let index = usize::try_from(index)
                .map_err(|_| format!("at path position '{here}' out of bounds index '{index}'"))?;
            visit(here, Element::Index(index))?;
            rest = after;
        } else if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            visit(path.get(..=here.len()).unwrap_or(path), Element::Field(name))?;
            rest = after;
        } else {
            return Err(format!("at path position '{here}' invalid path element '{rest}'"));
        }
    }
    Ok(())
}
