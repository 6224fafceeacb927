//! Admission policies: expressions that decide about requests, or change their objects.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use quintet_cel::{Program, Val};
use serde_json::{Value, json};

use crate::error::FieldError;
use crate::path::Path;

/// The steps all expressions of a policy may take for one request.
const BUDGET: u64 = 10_000_000;
/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;
const NAMES: [&str; 7] =
    ["object", "oldObject", "request", "authorizer", "params", "namespaceObject", "variables"];

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    is_strict: bool,
    variables: Vec<(String, Program)>,
    conditions: Vec<Program>,
    validations: Vec<Validation>,
    mutations: Vec<Mutation>,
}

/// A change that a policy makes.
#[derive(Debug)]
struct Mutation {
    program: Program,
    kind: MutationKind,
}

/// What the expression of a mutation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MutationKind {
    ApplyConfiguration,
    JsonPatch,
}

/// A change to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Merged into the object as server-side apply does.
    Apply(Value),
    /// A JSON patch.
    Json(Value),
}

#[derive(Debug)]
struct Validation {
    program: Program,
    message: String,
    message_program: Option<Program>,
    reason: String,
}

/// What a request is about. What is not there is null.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The object as it is.
    pub old_object: &'a Value,
    /// The request itself.
    pub request: &'a Value,
    /// What the binding configures the policy with.
    pub params: &'a Value,
    /// The namespace of the object.
    pub namespace: &'a Value,
}

/// Why a policy refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the user.
    pub message: String,
    /// Machine-readable, such as `Invalid`.
    pub reason: String,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Policy {
    /// Reads and compiles the `spec` of a policy.
    pub fn parse(spec: &Value, path: &Path<'_>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut compile = |path: &Path<'_>, expression: &str| {
            if expression.trim().is_empty() {
                errors.push(FieldError::required(path, "expression is not specified"));
                return None;
            }
            let compiled = Program::compile(expression, &NAMES);
            compiled
                .map_err(|error| {
                    errors.push(FieldError::invalid(path, &json!(expression), error.to_string()));
                })
                .ok()
        };
        let mut variables = Vec::new();
        for (index, variable) in items(spec, "variables").iter().enumerate() {
            let at = path.field("variables");
            let program = compile(&at.index(index).field("expression"), text(variable, "expression"));
            variables.extend(program.map(|program| (text(variable, "name").to_owned(), program)));
        }
        let mut conditions = Vec::new();
        for (index, condition) in items(spec, "matchConditions").iter().enumerate() {
            let at = path.field("matchConditions");
            conditions.extend(compile(&at.index(index).field("expression"), text(condition, "expression")));
        }
        let mut validations = Vec::new();
        for (index, validation) in items(spec, "validations").iter().enumerate() {
            let at = path.field("validations");
            let at = at.index(index);
            let message_program = match text(validation, "messageExpression") {
                "" => None,
                expression => compile(&at.field("messageExpression"), expression),
            };
            let program = compile(&at.field("expression"), text(validation, "expression"));
            validations.extend(program.map(|program| Validation {
                program,
                message: text(validation, "message").trim().to_owned(),
                message_program,
                reason: match text(validation, "reason") {
                    "" => "Invalid".into(),
                    reason => reason.into(),
                },
            }));
        }
        let mut mutations = Vec::new();
        for (index, mutation) in items(spec, "mutations").iter().enumerate() {
            let (kind, field) = match text(mutation, "patchType") {
                "JSONPatch" => (MutationKind::JsonPatch, "jsonPatch"),
                _ => (MutationKind::ApplyConfiguration, "applyConfiguration"),
            };
            // The validation of the policy reports what is missing altogether.
            let Some(patch) = mutation.get(field) else { continue };
            let list = path.field("mutations");
            let item = list.index(index);
            let program = compile(&item.field(field).field("expression"), text(patch, "expression"));
            mutations.extend(program.map(|program| Mutation { program, kind }));
        }
        let is_strict = text(spec, "failurePolicy") != "Ignore";
        if errors.is_empty() {
            Ok(Self { is_strict, variables, conditions, validations, mutations })
        } else {
            Err(errors)
        }
    }

    /// Whether a request is refused when the policy cannot be evaluated.
    pub const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Everything the policy has against a request.
    pub fn refusals(&self, request: Request<'_>) -> Vec<Refusal> {
        let budget = Cell::new(BUDGET);
        let scope = scope(request);
        match self.conditions_hold(&scope, &budget) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(problems) => return problems,
        }
        let scope = self.with_own_variables(&scope, &budget);
        let mut problems = Vec::new();
        for validation in &self.validations {
            match self.holds(&validation.program, &scope, &budget) {
                Ok(true) => {}
                Ok(false) => problems.push(Refusal {
                    message: validation.message(&scope, &budget),
                    reason: validation.reason.clone(),
                }),
                Err(problem) => problems.extend(problem),
            }
        }
        problems
    }

    /// Whether the policy is about a request at all.
    pub fn is_about(&self, request: Request<'_>) -> Result<bool, Vec<Refusal>> {
        let held = self.conditions_hold(&scope(request), &Cell::new(BUDGET));
        match held {
            // A condition that has no value, and is not to be refused for it.
            Err(problems) if problems.is_empty() => Ok(false),
            held => held,
        }
    }

    /// How many changes the policy makes.
    pub fn mutations(&self) -> usize {
        self.mutations.len()
    }

    /// One of its changes, to the object as the changes before have left it; or why there is none.
    pub fn patch(&self, index: usize, request: Request<'_>) -> Result<Option<Patch>, String> {
        let Some(mutation) = self.mutations.get(index) else { return Ok(None) };
        let budget = Cell::new(BUDGET);
        let scope = self.with_own_variables(&scope(request), &budget);
        let text = mutation.program.text();
        let made = mutation.program.eval(&scope, &budget);
        let made = made.map_err(|error| format!("expression '{text}' resulted in error: {error}"))?;
        let json = made.to_json().ok_or_else(|| {
            format!("expression '{text}' resulted in error: {} is no value of an object", made.type_name())
        })?;
        match (mutation.kind, &json) {
            (MutationKind::ApplyConfiguration, Value::Object(_)) => Ok(Some(Patch::Apply(json))),
            (MutationKind::ApplyConfiguration, _) => {
                Err(format!("expression '{text}' resulted in error: must evaluate to Object"))
            }
            (MutationKind::JsonPatch, Value::Array(_)) => Ok(Some(Patch::Json(json))),
            (MutationKind::JsonPatch, _) => {
                Err(format!("expression '{text}' resulted in error: must evaluate to list(JSONPatch)"))
            }
        }
    }

    fn conditions_hold<'v>(
        &'v self,
        scope: &[(&'v str, Val<'v>)],
        budget: &Cell<u64>,
    ) -> Result<bool, Vec<Refusal>> {
        let mut problems = Vec::new();
        let mut is_known = true;
        for condition in &self.conditions {
            match self.holds(condition, scope, budget) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(problem) => {
                    is_known = false;
                    problems.extend(problem);
                }
            }
        }
        if is_known { Ok(true) } else { Err(problems) }
    }

    fn with_own_variables<'v>(
        &'v self,
        scope: &[(&'v str, Val<'v>)],
        budget: &Cell<u64>,
    ) -> Vec<(&'v str, Val<'v>)> {
        let mut known: Vec<(Val<'_>, Val<'_>)> = Vec::new();
        for (name, program) in &self.variables {
            let with = with_variables(scope, &known);
            // A variable that has no value is missing where it is used, and only there.
            if let Ok(value) = program.eval(&with, budget) {
                known.push((Val::String(Cow::Borrowed(name)), value));
            }
        }
        with_variables(scope, &known)
    }

    /// Whether an expression is true; what to say if it has no value, unless that is to be ignored.
    fn holds<'v>(
        &self,
        program: &'v Program,
        scope: &[(&'v str, Val<'v>)],
        budget: &Cell<u64>,
    ) -> Result<bool, Option<Refusal>> {
        let why = match program.eval(scope, budget) {
            Ok(Val::Bool(holds)) => return Ok(holds),
            Ok(_) => "must evaluate to bool".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(self.is_strict.then(|| Refusal {
            message: format!("expression '{}' resulted in error: {why}", program.text()),
            reason: "Invalid".into(),
        }))
    }
}

fn scope(request: Request<'_>) -> Vec<(&'static str, Val<'_>)> {
    vec![
        ("object", Val::from_json(request.object, None)),
        ("oldObject", Val::from_json(request.old_object, None)),
        ("request", Val::from_json(request.request, None)),
        ("params", Val::from_json(request.params, None)),
        ("namespaceObject", Val::from_json(request.namespace, None)),
    ]
}

fn with_variables<'v>(scope: &[(&'v str, Val<'v>)], known: &[(Val<'v>, Val<'v>)]) -> Vec<(&'v str, Val<'v>)> {
    let mut with: Vec<(&str, Val<'_>)> =
        scope.iter().filter(|(name, _)| *name != "variables").cloned().collect();
    with.push(("variables", Val::Map(Rc::new(known.to_vec()))));
    with
}

impl Validation {
    fn message<'v>(&'v self, scope: &[(&'v str, Val<'v>)], budget: &Cell<u64>) -> String {
        let made = self.message_program.as_ref().and_then(|program| match program.eval(scope, budget) {
            Ok(Val::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        let made = made.filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE);
        match made {
            Some(text) => text,
            None if self.message.is_empty() => format!("failed expression: {}", self.program.text()),
            None => self.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(spec: &Value, object: &Value, params: &Value) -> Vec<String> {
        let policy = Policy::parse(spec, &Path::new("spec")).unwrap();
        let null = Value::Null;
        let request = Request {
            object,
            old_object: &null,
            request: &json!({"operation": "CREATE"}),
            params,
            namespace: &null,
        };
        policy.refusals(request).into_iter().map(|refusal| refusal.message).collect()
    }

    #[test]
    fn validations_see_variables_and_params() {
        let spec = json!({
            "variables": [
                {"name": "size", "expression": "object.spec.size"},
                {"name": "twice", "expression": "variables.size * 2"},
                {"name": "broken", "expression": "object.nope.nope"}],
            "validations": [
                {"expression": "variables.twice <= params.most", "messageExpression": "'twice is ' + string(variables.twice)"},
                {"expression": "variables.size > 0", "message": "too small"},
                {"expression": "variables.size != 3"}]});
        let most = json!({"most": 6});
        assert_eq!(messages(&spec, &json!({"spec": {"size": 2}}), &most), Vec::<String>::new());
        assert_eq!(messages(&spec, &json!({"spec": {"size": 5}}), &most), ["twice is 10"]);
        assert_eq!(messages(&spec, &json!({"spec": {"size": 0}}), &most), ["too small"]);
        assert_eq!(
            messages(&spec, &json!({"spec": {"size": 3}}), &most),
            ["failed expression: variables.size != 3"]
        );
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused_unless_it_is_to_be_ignored() {
        let mut spec = json!({"validations": [{"expression": "object.nope == 1"}]});
        assert_eq!(
            messages(&spec, &json!({}), &Value::Null),
            ["expression 'object.nope == 1' resulted in error: no such key: nope"]
        );
        spec["failurePolicy"] = json!("Ignore");
        assert_eq!(messages(&spec, &json!({}), &Value::Null), Vec::<String>::new());
        spec["matchConditions"] = json!([{"name": "c", "expression": "request.operation == 'DELETE'"}]);
        spec["validations"] = json!([{"expression": "false"}]);
        assert_eq!(messages(&spec, &json!({}), &Value::Null), Vec::<String>::new());
    }

    #[test]
    fn mutations_make_patches_of_the_object_they_see() {
        let spec = json!({
            "variables": [{"name": "app", "expression": "object.metadata.labels['app']"}],
            "matchConditions": [{"name": "c", "expression": "request.operation == 'CREATE'"}],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{annotations: {'for': variables.app}}, spec: Object.spec{replicas: 1 + 1, ?paused: optional.none()}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: object.spec.replicas}]"}},
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "'text'"}}]});
        let policy = Policy::parse(&spec, &Path::new("spec")).unwrap();
        let object = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 7}});
        let null = Value::Null;
        let at = |operation: &str| json!({"operation": operation});
        let (create, update) = (at("CREATE"), at("UPDATE"));
        let request = |request| Request {
            object: &object,
            old_object: &null,
            request,
            params: &null,
            namespace: &null,
        };
        assert_eq!(policy.is_about(request(&update)), Ok(false));
        assert_eq!(policy.is_about(request(&create)), Ok(true));
        assert_eq!(policy.mutations(), 3);
        let apply = json!({"metadata": {"annotations": {"for": "web"}}, "spec": {"replicas": 2}});
        assert_eq!(policy.patch(0, request(&create)), Ok(Some(Patch::Apply(apply))));
        let patch = json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": 7}]);
        assert_eq!(policy.patch(1, request(&create)), Ok(Some(Patch::Json(patch))));
        let refused = "expression ''text'' resulted in error: must evaluate to Object";
        assert_eq!(policy.patch(2, request(&create)), Err(refused.to_owned()));
    }

    #[test]
    fn expressions_are_compiled_when_they_are_written() {
        let spec = json!({"validations": [{"expression": "object.a =="}, {"expression": "nobody.b"}]});
        let errors = Policy::parse(&spec, &Path::new("spec")).unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["spec.validations[0].expression", "spec.validations[1].expression"]);
    }
}
