//! Expressions that select devices, in the environment that Kubernetes evaluates them in (its package
//! `dynamic-resource-allocation/cel`).

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceSelector};
use quintet_cel::{CALL_BUDGET, Fields, Program, Type, Val};

use super::slices::Device;

const DEVICE: &str = "device";

/// An expression that selects devices, compiled once.
#[derive(Clone, Debug)]
pub struct Selector {
    text: Arc<str>,
    compiled: Arc<Result<Program, String>>,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl Selector {
    /// Compiles an expression. One that is wrong selects nothing, and says why.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: Arc::new(compiled(text)) }
    }

    /// The expressions of a list of selectors.
    pub(super) fn all(selectors: Option<&[DeviceSelector]>) -> Vec<Self> {
        let expressions = selectors.into_iter().flatten().filter_map(|selector| selector.cel.as_ref());
        expressions.map(|cel| Self::new(&cel.expression)).collect()
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is wrong with it.
    pub fn error(&self) -> Option<&str> {
        self.compiled.as_ref().as_ref().err().map(String::as_str)
    }

    fn selects(&self, device: &Val<'_>) -> Result<bool, String> {
        let program = self.compiled.as_ref().as_ref().map_err(Clone::clone)?;
        let budget = Cell::new(CALL_BUDGET);
        match program.eval(&[(DEVICE, device.clone())], &budget).map_err(|error| error.to_string())? {
            Val::Bool(is_selected) => Ok(is_selected),
            other => {
                let kind = other.type_name();
                Err(format!(
                    "CEL result of type {kind} could not be converted to bool: unsupported type conversion from '{kind}' to bool"
                ))
            }
        }
    }
}

/// The types are those of Kubernetes 1.31: Kueue enables none of the features that added more.
fn compiled(text: &str) -> Result<Program, String> {
    let of_domains = |values| Type::Map(Box::new(Type::Map(Box::new(values))));
    let fields = [
        ("driver", Type::Text),
        ("attributes", of_domains(Type::Dyn)),
        // Quantities, which the type checker does not know.
        ("capacity", of_domains(Type::Dyn)),
    ];
    let program = Program::compile_with_bindings(text, &[DEVICE]).map_err(|error| error.to_string())?;
    let result = program.result(&[(DEVICE, Type::Object(Fields::Named(&fields)))]);
    match result.map_err(|error| error.to_string())? {
        Type::Bool | Type::Dyn => Ok(program),
        other => Err(format!("must evaluate to bool or the unknown type, not {other}")),
    }
}

/// A device that selectors are asked about.
pub(super) struct Candidate<'d> {
    pub(super) driver: &'d str,
    pub(super) device: &'d Device,
    /// What expressions see of it, once one looks.
    seen: OnceCell<Result<Val<'d>, String>>,
}

impl<'d> Candidate<'d> {
    pub(super) fn new(driver: &'d str, device: &'d Device) -> Self {
        Self { driver, device, seen: OnceCell::new() }
    }

    /// Whether all selectors select it.
    pub(super) fn is_selected(&self, selectors: &[Selector]) -> Result<bool, String> {
        for selector in selectors {
            let seen = self.seen.get_or_init(|| seen(self.driver, self.device));
            if !selector.selects(seen.as_ref().map_err(Clone::clone)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

type Domains<'d> = BTreeMap<&'d str, Vec<(Val<'d>, Val<'d>)>>;

fn seen<'d>(driver: &'d str, device: &'d Device) -> Result<Val<'d>, String> {
    let (mut attributes, mut capacity) = (Domains::new(), Domains::new());
    for (name, attribute) in &device.attributes {
        let value = value(attribute).map_err(|why| format!("attribute {name}: {why}"))?;
        insert(&mut attributes, name, driver, value);
    }
    for (name, of_device) in &device.capacities {
        insert(&mut capacity, name, driver, Val::Quantity(of_device.value));
    }
    Ok(Val::Map(Rc::new(vec![
        (text("driver"), text(driver)),
        (text("attributes"), by_domain(attributes)),
        (text("capacity"), by_domain(capacity)),
    ])))
}

/// A name without a domain is one of the driver's.
fn insert<'d>(domains: &mut Domains<'d>, name: &'d str, driver: &'d str, value: Val<'d>) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    domains.entry(domain).or_default().push((text(id), value));
}

fn by_domain(domains: Domains<'_>) -> Val<'_> {
    let entries = domains.into_iter();
    Val::Maps(Rc::new(entries.map(|(domain, values)| (text(domain), Val::Map(Rc::new(values)))).collect()))
}

fn text(text: &str) -> Val<'_> {
    Val::String(Cow::Borrowed(text))
}

fn value(attribute: &DeviceAttribute) -> Result<Val<'_>, String> {
    match attribute {
        DeviceAttribute { int: Some(number), .. } => Ok(Val::Int(*number)),
        DeviceAttribute { bool: Some(value), .. } => Ok(Val::Bool(*value)),
        DeviceAttribute { string: Some(value), .. } => Ok(text(value)),
        DeviceAttribute { version: Some(version), .. } => {
            Val::semver(version).ok_or_else(|| format!("parse semantic version: {version}"))
        }
        _ => Err("unsupported attribute value".to_owned()),
    }
}
