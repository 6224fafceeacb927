//! Fills compute templates into Ray resources.

use serde_json::{Map, Value};

use super::{ANNOTATION, ComputeTemplate};

/// The head group or a worker group of a Ray cluster.
pub(crate) struct Group<'a> {
    /// Its container of this name runs Ray, and is given GPUs and other devices.
    ray_container: &'static str,
    spec: &'a mut Map<String, Value>,
}

/// The groups of the Ray cluster in a resource: of a RayJob, a RayService or a RayCluster, whichever is there first.
pub(crate) fn groups(resource: &mut Value) -> Vec<Group<'_>> {
    let Some(spec) = resource.get_mut("spec").filter(|spec| spec.is_object()) else { return Vec::new() };
    let nested = ["rayClusterSpec", "rayClusterConfig"].into_iter().find(|name| spec[name].is_object());
    let cluster = match nested {
        Some(name) => &mut spec[name],
        None => spec,
    };
    let Some(cluster) = cluster.as_object_mut() else { return Vec::new() };
    let mut groups = Vec::new();
    for (name, field) in cluster {
        match (name.as_str(), field) {
            ("headGroupSpec", Value::Object(spec)) => {
                groups.insert(0, Group { ray_container: "ray-head", spec });
            }
            ("workerGroupSpecs", Value::Array(workers)) => {
                let specs = workers.iter_mut().filter_map(Value::as_object_mut);
                groups.extend(specs.map(|spec| Group { ray_container: "ray-worker", spec }));
            }
            _ => {}
        }
    }
    groups
}

impl Group<'_> {
    /// The name of its compute template.
    pub(crate) fn template_name(&self) -> Option<&str> {
        self.spec.get("computeTemplate")?.as_str()
    }

    /// Fills a compute template into its pod template, if it has one.
    pub(crate) fn apply(&mut self, template: &ComputeTemplate) {
        let Some(pod) = self.spec.get_mut("template").and_then(Value::as_object_mut) else { return };
        edit(pod, "metadata", |metadata| {
            edit(metadata, "annotations", |annotations| {
                annotations.insert(ANNOTATION.to_owned(), template.name.as_str().into());
            });
        });
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
        if let Some(containers) = spec.get_mut("containers").and_then(Value::as_array_mut) {
            for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                let is_ray = container.get("name").is_some_and(|name| name == self.ray_container);
                edit(container, "resources", |resources| {
                    for list in ["limits", "requests"] {
                        edit(resources, list, |list| add_resources(list, template, is_ray));
                    }
                });
            }
        }
        if let Some(tolerations) = &template.tolerations {
            let existing = spec.get("tolerations").and_then(Value::as_array);
            let mut all = existing.cloned().unwrap_or_default();
            all.extend_from_slice(tolerations);
            // As upstream encodes a list that has never had a member.
            let is_new = existing.is_none() && all.is_empty();
            spec.insert("tolerations".to_owned(), if is_new { Value::Null } else { all.into() });
        }
    }
}

fn add_resources(list: &mut Map<String, Value>, template: &ComputeTemplate, is_ray: bool) {
    list.insert("cpu".to_owned(), template.cpu.as_str().into());
    list.insert("memory".to_owned(), template.memory.as_str().into());
    if is_ray {
        for (resource, amount) in template.gpu.iter().chain(&template.extended_resources) {
            list.insert(resource.clone(), (*amount).into());
        }
    }
}

/// Changes the object in a field. Anything else there is replaced by one.
fn edit(parent: &mut Map<String, Value>, field: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut object = match parent.remove(field) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    change(&mut object);
    parent.insert(field.to_owned(), object.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> ComputeTemplate {
        let data = json!({"metadata": {"name": "t"}, "data": {
            "cpu": "2", "memory": "4", "memory_unit": "Gi", "gpu": "1",
            "extended_resources": r#"{"x/y": 3}"#, "tolerations": r#"[{"key": "new"}]"#,
        }});
        ComputeTemplate::read("t", &data)
    }

    fn applied(mut resource: Value) -> Value {
        for mut group in groups(&mut resource) {
            if group.template_name().is_some() {
                group.apply(&template());
            }
        }
        resource
    }

    #[test]
    fn every_container_gets_cpu_and_memory_and_ray_the_devices() {
        let spec = json!({"tolerations": [{"key": "old"}], "containers": [
            {"name": "ray-head", "resources": {"limits": {"cpu": "1", "a/b": 1}, "requests": "broken"}},
            {"name": "ray-worker"},
        ]});
        let pod = json!({"metadata": null, "spec": spec});
        let cluster = applied(json!({"spec": {"headGroupSpec": {"computeTemplate": "t", "template": pod}}}));
        let pod = &cluster["spec"]["headGroupSpec"]["template"];
        assert_eq!(pod["metadata"], json!({"annotations": {ANNOTATION: "t"}}));
        let small = json!({"cpu": "2", "memory": "4Gi"});
        let devices = json!({"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1, "x/y": 3});
        let mut limits = devices.clone();
        limits["a/b"] = json!(1);
        let containers = &pod["spec"]["containers"];
        assert_eq!(containers[0]["resources"], json!({"limits": limits, "requests": devices}));
        assert_eq!(containers[1]["resources"], json!({"limits": small, "requests": small}));
        let added = json!({"key": "new", "operator": "", "value": "", "effect": ""});
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "old"}, added]));
    }

    #[test]
    fn groups_are_found_in_jobs_services_and_clusters() {
        let cluster = json!({
            "workerGroupSpecs": [{"computeTemplate": "a"}, "none", {"computeTemplate": "b"}, {"computeTemplate": 1}],
            "headGroupSpec": {"computeTemplate": "head"},
        });
        let names = |mut resource: Value| -> Vec<Option<String>> {
            groups(&mut resource).iter().map(|group| group.template_name().map(str::to_owned)).collect()
        };
        let expected: Vec<_> =
            [Some("head"), Some("a"), Some("b"), None].map(|it| it.map(str::to_owned)).into();
        assert_eq!(names(json!({"spec": cluster})), expected);
        assert_eq!(names(json!({"spec": {"rayClusterSpec": cluster}})), expected);
        assert_eq!(names(json!({"spec": {"rayClusterConfig": cluster, "headGroupSpec": {}}})), expected);
        assert!(names(json!({"spec": {"rayClusterSpec": {}, "rayClusterConfig": cluster}})).is_empty());
        assert!(names(json!({"spec": [cluster]})).is_empty());
        assert!(names(json!(null)).is_empty());
    }

    #[test]
    fn a_group_without_a_pod_template_stays_as_it_is() {
        let cluster = json!({"spec": {"headGroupSpec": {"computeTemplate": "t"}}});
        assert_eq!(applied(cluster.clone()), cluster);
    }

    proptest::proptest! {
        /// Applying is total, and applying twice changes nothing but the tolerations, which are appended again.
        #[test]
        fn strange_templates_do_not_break_it(field in 0..6_usize, shape in 0..5_usize) {
            let shapes = [json!(null), json!(1), json!("x"), json!([1, {"name": "ray-head"}]), json!({"a": []})];
            let path = ["", "/metadata", "/metadata/annotations", "/spec", "/spec/containers", "/spec/tolerations"];
            let mut resource = json!({"spec": {"headGroupSpec": {"computeTemplate": "t", "template": {
                "metadata": {"annotations": {}}, "spec": {"containers": [], "tolerations": []},
            }}}});
            let place = format!("/spec/headGroupSpec/template{}", path[field]);
            *resource.pointer_mut(&place).unwrap() = shapes[shape].clone();
            let once = applied(resource);
            let mut twice = applied(once.clone());
            let tolerations = "/spec/headGroupSpec/template/spec/tolerations";
            if let (Some(first), Some(second)) = (once.pointer(tolerations), twice.pointer_mut(tolerations)) {
                *second = first.clone();
            }
            proptest::prop_assert_eq!(once, twice);
        }
    }
}
