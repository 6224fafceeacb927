package main

import (
	"encoding/json"
	"fmt"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// A step of a sequence: a write, and what it leaves behind.
type step struct {
	Op      string `json:"op"`
	Manager string `json:"manager"`
	Force   bool   `json:"force"`
	Object  any    `json:"object"`
	Result  any    `json:"result"`
	Error   string `json:"error,omitempty"`
}

type sequence struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// The schema of a custom resource.
	Schema any    `json:"schema,omitempty"`
	Steps  []step `json:"steps"`
}

// A kind whose objects are written.
type target struct {
	gvk     schema.GroupVersionKind
	schema  any
	manager *managedfields.FieldManager
	random  func(*random) object
}

func recordSequence() func(*random) any {
	targets := builtinTargets()
	targets = append(targets, customTargets()...)
	return func(r *random) any {
		t := pick(r, targets...)
		apiVersion, kind := t.gvk.ToAPIVersionAndKind()
		recorded := sequence{APIVersion: apiVersion, Kind: kind, Schema: t.schema}
		var live runtime.Object
		for range 2 + r.IntN(5) {
			s := t.step(r, live != nil)
			object, err := t.write(live, &s)
			if s.Op != "apply" && err != nil && strings.HasPrefix(err.Error(), "failed to convert new object") {
				continue // The server ignores this error; validation rejects the object afterwards.
			}
			if err != nil {
				s.Error = err.Error()
			} else {
				live = object
				// A stored object has been created: its managed fields are tracked, or they are not.
				accessor(live).SetUID("1")
				s.Result = withoutTimes(live)
			}
			recorded.Steps = append(recorded.Steps, s)
		}
		return recorded
	}
}

func (t *target) step(r *random, exists bool) step {
	body := t.random(r)
	op := pick(r, "apply", "apply", "apply", "update")
	if exists {
		op = pick(r, "apply", "apply", "apply", "update", "merge", "strategic", "json")
	}
	if op == "strategic" && t.schema != nil {
		op = "merge"
	}
	if op == "json" && t.gvk.Kind == "Deployment" {
		op = "merge" // Its empty structs are there for JSON patches only because nothing is defaulted here.
	}
	s := step{Op: op, Object: body}
	switch op {
	case "apply":
		s.Manager, s.Force = pick(r, "m1", "m2", "m3"), r.once(3)
	case "merge":
		s.Manager, s.Object = pick(r, "u1", "u2"), r.withNulls(body)
	case "strategic":
		s.Manager, s.Object = pick(r, "u1", "u2"), r.withDirectives(body)
	case "json":
		s.Manager, s.Object = pick(r, "u1", "u2"), r.jsonPatch(body)
	default:
		s.Manager = pick(r, "u1", "u2", "m1")
	}
	return s
}

func (t *target) empty() runtime.Object {
	if t.schema != nil {
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(t.gvk)
		return empty
	}
	empty := must(clientscheme.Scheme.New(t.gvk))
	empty.GetObjectKind().SetGroupVersionKind(t.gvk)
	return empty
}

func (t *target) read(data []byte) (runtime.Object, error) {
	into := t.empty()
	if custom, ok := into.(*unstructured.Unstructured); ok {
		// Numbers as the server reads them.
		return custom, custom.UnmarshalJSON(data)
	}
	return into, json.Unmarshal(data, into)
}

func (t *target) write(live runtime.Object, s *step) (runtime.Object, error) {
	base := live
	if base == nil {
		base = t.empty()
	}
	sent := must(json.Marshal(s.Object))
	if s.Op == "apply" {
		config := &unstructured.Unstructured{}
		if err := config.UnmarshalJSON(sent); err != nil {
			return nil, err
		}
		applied, err := t.manager.Apply(base.DeepCopyObject(), config, s.Manager, s.Force)
		if err != nil {
			return nil, err
		}
		if applied == nil {
			return base, nil
		}
		return t.read(must(json.Marshal(applied)))
	}
	data := sent
	if s.Op != "update" {
		before := withoutNulls(base)
		var err error
		switch s.Op {
		case "merge":
			data, err = jsonpatch.MergePatch(before, sent)
		case "strategic":
			data, err = strategicpatch.StrategicMergePatch(before, sent, t.empty())
		case "json":
			var patch jsonpatch.Patch
			if patch, err = jsonpatch.DecodePatch(sent); err == nil {
				data, err = patch.Apply(before)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	object, err := t.read(data)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if live != nil && s.Op == "update" {
		accessor(object).SetManagedFields(accessor(live).GetManagedFields())
	}
	return t.manager.Update(base.DeepCopyObject(), object, s.Manager)
}

func accessor(o runtime.Object) metav1.Object { return o.(metav1.Object) }

func withoutTimes(o runtime.Object) any {
	copied := o.DeepCopyObject()
	entries := accessor(copied).GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	accessor(copied).SetManagedFields(entries)
	return copied
}

func withoutNulls(o runtime.Object) []byte {
	var value any
	decode(must(json.Marshal(o)), &value)
	return must(json.Marshal(strip(value)))
}

func strip(value any) any {
	switch value := value.(type) {
	case object:
		for key, field := range value {
			if field == nil {
				delete(value, key)
			} else {
				value[key] = strip(field)
			}
		}
	case []any:
		for i := range value {
			value[i] = strip(value[i])
		}
	}
	return value
}

// Fields that every patch keeps as they are.
var identity = map[string]bool{
	"apiVersion": true, "kind": true, "name": true, "namespace": true, "uid": true, "port": true, "targetPort": true, "mountPath": true, "topologyKey": true,
	"whenUnsatisfiable": true, "maxSkew": true, "key": true, "path": true, "weight": true, "ip": true, "containerPort": true, "operator": true,
	"fieldPath": true, "pathType": true, "backend": true, "preference": true, "cpu": true, "memory": true,
}

// Some fields of a patch are removals.
func (r *random) withNulls(value any) any {
	if fields, ok := value.(object); ok {
		patch := object{}
		for _, key := range sortedKeys(fields) {
			if identity[key] {
				patch[key] = fields[key]
			} else if r.once(6) && key != "metadata" {
				patch[key] = nil
			} else if !r.once(4) {
				patch[key] = r.withNulls(fields[key])
			}
		}
		return patch
	}
	return value
}

// Like withNulls, with strategic merge patch's directives in some lists and maps.
func (r *random) withDirectives(value any) any {
	switch value := value.(type) {
	case object:
		patch := object{}
		for _, key := range sortedKeys(value) {
			if identity[key] {
				patch[key] = value[key]
			} else if r.once(8) && key != "metadata" {
				patch[key] = nil
			} else if !r.once(5) {
				patch[key] = r.withDirectives(value[key])
			}
		}
		if _, isRoot := value["metadata"]; r.once(25) && len(value) > 0 && !isRoot {
			patch["$patch"] = pick(r, "replace", "merge", "delete")
		}
		return patch
	case []any:
		patched := []any{}
		for _, item := range value {
			patched = append(patched, r.withDirectives(item))
		}
		if len(patched) > 0 && r.once(6) {
			if item, ok := patched[0].(object); ok {
				item["$patch"] = pick(r, "delete", "replace", "merge")
			}
		}
		return patched
	}
	return value
}

// Operations at places that may exist.
func (r *random) jsonPatch(body object) any {
	operations := []any{}
	for range 1 + r.IntN(3) {
		path, value := r.place("", body)
		switch op := pick(r, "add", "replace", "remove", "test", "copy", "move"); op {
		case "remove":
			operations = append(operations, object{"op": op, "path": path})
		case "copy", "move":
			to, _ := r.place("", body)
			operations = append(operations, object{"op": op, "from": path, "path": to})
		default:
			operations = append(operations, object{"op": op, "path": path, "value": value})
		}
	}
	return operations
}

func (r *random) place(path string, value any) (string, any) {
	switch inner := value.(type) {
	case object:
		keys := sortedKeys(inner)
		if len(keys) == 0 || path != "" && path != "/metadata" && r.once(4) {
			return path, value
		}
		key := pick(r, keys...)
		if path == "" && (key == "apiVersion" || key == "kind") {
			return "/metadata/labels", object{"a": "1"}
		}
		return r.place(path+"/"+escape(key), inner[key])
	case []any:
		if len(inner) == 0 || r.once(4) {
			return path, value
		}
		index := r.IntN(len(inner))
		if r.once(5) {
			return path + "/-", inner[index]
		}
		return r.place(fmt.Sprintf("%s/%d", path, index), inner[index])
	}
	if path == "/metadata/name" || path == "/metadata/namespace" {
		return "/metadata/annotations", object{"k": "v"}
	}
	return path, value
}

func escape(key string) string {
	out := ""
	for _, c := range key {
		switch c {
		case '~':
			out += "~0"
		case '/':
			out += "~1"
		default:
			out += string(c)
		}
	}
	return out
}

// What the field manager needs of a scheme.
type creater struct{ gvk schema.GroupVersionKind }

func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if !clientscheme.Scheme.Recognizes(gvk) {
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(gvk)
		return empty, nil
	}
	empty, err := clientscheme.Scheme.New(gvk)
	if err == nil {
		empty.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return empty, err
}

// There is one version of each kind: nothing is converted or defaulted.
type unchanged struct{}

func (unchanged) Default(runtime.Object)    {}
func (unchanged) Convert(_, _, _ any) error { return fmt.Errorf("no conversion") }
func (unchanged) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (unchanged) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func builtinTargets() []target {
	converter := applyconfigurations.NewTypeConverter(clientscheme.Scheme)
	build := func(group, version, kind string, body func(*random) object) target {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		manager := must(managedfields.NewDefaultFieldManager(converter, unchanged{}, unchanged{}, creater{}, gvk, gvk.GroupVersion(), "", nil))
		return target{gvk: gvk, manager: manager, random: func(r *random) object { return r.named(gvk, body(r)) }}
	}
	return []target{
		build("apps", "v1", "Deployment", (*random).deployment),
		build("", "v1", "Pod", (*random).podBody),
		build("", "v1", "Service", (*random).service),
		build("", "v1", "ConfigMap", (*random).configMap),
		build("networking.k8s.io", "v1", "Ingress", (*random).ingress),
	}
}

func customTargets() []target {
	targets := []target{}
	for index, text := range customSchemas {
		var properties apiextensions.JSONSchemaProps
		decode([]byte(text), &properties)
		gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprintf("Thing%d", index)}
		definition := &apiextensions.CustomResourceDefinition{
			Spec: apiextensions.CustomResourceDefinitionSpec{
				Group: gvk.Group,
				Scope: apiextensions.NamespaceScoped,
				Names: apiextensions.CustomResourceDefinitionNames{Kind: gvk.Kind, ListKind: gvk.Kind + "List", Plural: fmt.Sprintf("thing%ds", index), Singular: fmt.Sprintf("thing%d", index)},
				Versions: []apiextensions.CustomResourceDefinitionVersion{{
					Name: gvk.Version, Served: true, Storage: true,
					Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &properties},
				}},
			},
		}
		document := must(builder.BuildOpenAPIV3(definition, gvk.Version, builder.Options{}))
		models := map[string]*spec.Schema{}
		for name, model := range document.Components.Schemas {
			models[name] = model
		}
		converter := must(managedfields.NewTypeConverter(models, false))
		manager := must(managedfields.NewDefaultCRDFieldManager(converter, unchanged{}, unchanged{}, creater{}, gvk, gvk.GroupVersion(), "", nil))
		var raw any
		decode([]byte(text), &raw)
		specSchema := raw.(object)["properties"].(object)["spec"]
		targets = append(targets, target{gvk: gvk, schema: raw, manager: manager, random: func(r *random) object {
			return r.named(gvk, object{"spec": r.ofSchema(specSchema.(object))})
		}})
	}
	return targets
}
