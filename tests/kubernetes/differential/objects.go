package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	genericvalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"sigs.k8s.io/yaml"
)

//go:embed templates.yaml
var templates []byte

// What the server's strategies do with one write of an object.
type verdict struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// What the client sends.
	Object any `json:"object"`
	// The stored object it replaces; absent for a creation.
	Old any `json:"old,omitempty"`
	// Why the object cannot be decoded.
	Undecodable string `json:"undecodable,omitempty"`
	// The object after defaulting.
	Defaulted any `json:"defaulted,omitempty"`
	// The object as it would be stored, if it is valid.
	Stored any      `json:"stored,omitempty"`
	Errors []string `json:"errors"`
}

// A kind with the strategies its writes go through.
type kind struct {
	gvk      schema.GroupVersionKind
	template object
	create   rest.RESTCreateStrategy
	update   rest.RESTUpdateStrategy
}

func strategies() map[string][2]any {
	both := func(one any) [2]any { return [2]any{one, one} }
	return map[string][2]any{
		"Pod": both(pod.Strategy), "Service": both(service.Strategy), "ConfigMap": both(configmap.Strategy),
		"Secret": both(secret.Strategy), "Namespace": both(namespace.Strategy), "ServiceAccount": both(serviceaccount.Strategy),
		"LimitRange": both(limitrange.Strategy), "ResourceQuota": both(resourcequota.Strategy),
		"PersistentVolumeClaim": both(persistentvolumeclaim.Strategy), "ReplicationController": both(replicationcontroller.Strategy),
		"Deployment": both(deployment.Strategy), "ReplicaSet": both(replicaset.Strategy), "StatefulSet": both(statefulset.Strategy),
		"DaemonSet": both(daemonset.Strategy), "Job": both(job.Strategy), "CronJob": both(cronjob.Strategy),
		"HorizontalPodAutoscaler": both(horizontalpodautoscaler.Strategy), "PodDisruptionBudget": both(poddisruptionbudget.Strategy),
		"Ingress": both(ingress.Strategy), "NetworkPolicy": both(networkpolicy.Strategy), "Lease": both(lease.Strategy),
		"PriorityClass": both(priorityclass.Strategy), "StorageClass": both(storageclass.Strategy), "RuntimeClass": both(runtimeclass.Strategy),
		"Role": both(role.Strategy), "RoleBinding": both(rolebinding.Strategy),
	}
}

// Fields without which an object is only ever rejected for the same reason.
var kept = map[string]bool{
	"apiVersion": true, "kind": true, "metadata": true, "name": true, "namespace": true, "spec": true, "containers": true, "image": true,
	"template": true, "selector": true, "matchLabels": true, "labels": true, "restartPolicy": true, "schedule": true, "jobTemplate": true,
	"clusterIP": true, "clusterIPs": true,
}

func recordObject() func(*random) any {
	known := strategies()
	kinds := []kind{}
	for _, document := range bytes.Split(templates, []byte("\n---\n")) {
		var template object
		if err := yaml.Unmarshal(document, &template); err != nil {
			panic(err)
		}
		gvk := schema.FromAPIVersionAndKind(template["apiVersion"].(string), template["kind"].(string))
		both := known[gvk.Kind]
		kinds = append(kinds, kind{gvk, template, both[0].(rest.RESTCreateStrategy), both[1].(rest.RESTUpdateStrategy)})
	}
	return func(r *random) any {
		for {
			if recorded, ok := judgeRandom(r, pick(r, kinds...)); ok {
				return recorded
			}
		}
	}
}

// Validation panics on some invalid objects, which the server answers with an internal error: there is nothing to
// compare with.
func judgeRandom(r *random, k kind) (recorded verdict, ok bool) {
	defer func() { ok = recover() == nil }()
	sent := r.thin(clone(k.template), pick(r, 3, 8, 20, 1000), kept)
	var old runtime.Object
	if r.once(3) {
		old = k.stored(clone(sent))
	}
	for range pick(r, 0, 1, 1, 1, 2, 3) {
		sent = r.mutateBody(sent.(object))
	}
	return k.judge(sent, old), true
}

// Changes an object, but not what it is.
func (r *random) mutateBody(sent object) any {
	apiVersion, kind := sent["apiVersion"], sent["kind"]
	changed := r.mutate(sent).(object)
	changed["apiVersion"], changed["kind"] = apiVersion, kind
	if _, ok := changed["metadata"].(object); !ok {
		changed["metadata"] = object{"name": "o", "namespace": "default"}
	}
	return changed
}

func (k *kind) context() context.Context {
	namespace := "default"
	if !k.create.NamespaceScoped() {
		namespace = ""
	}
	ctx := request.WithNamespace(request.NewContext(), namespace)
	return request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: k.gvk.Group, APIVersion: k.gvk.Version, IsResourceRequest: true})
}

// The object as a client's first valid creation leaves it, or nothing.
func (k *kind) stored(sent any) runtime.Object {
	internal, _, err := k.read(sent)
	if err != nil {
		return nil
	}
	k.fill(internal)
	if errs := k.creationErrors(internal); len(errs) > 0 {
		return nil
	}
	must(meta.Accessor(internal)).SetResourceVersion("1")
	return internal
}

// Decodes, defaults and converts; also returns the defaulted JSON.
func (k *kind) read(sent any) (internal runtime.Object, defaulted any, err error) {
	versioned := must(legacyscheme.Scheme.New(k.gvk))
	if err := json.Unmarshal(must(json.Marshal(sent)), versioned); err != nil {
		return nil, nil, err
	}
	versioned.GetObjectKind().SetGroupVersionKind(k.gvk)
	legacyscheme.Scheme.Default(versioned)
	internal, err = legacyscheme.Scheme.UnsafeConvertToVersion(versioned.DeepCopyObject(), schema.GroupVersion{Group: k.gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, nil, err
	}
	// Conversion fills in fields too: what a client reads back has gone through it.
	return internal, k.written(internal), nil
}

func (k *kind) written(internal runtime.Object) any {
	versioned := must(legacyscheme.Scheme.ConvertToVersion(internal, k.gvk.GroupVersion()))
	versioned.GetObjectKind().SetGroupVersionKind(k.gvk)
	return plain(versioned)
}

// What the server fills in before its strategies run.
func (k *kind) fill(o runtime.Object) {
	object := must(meta.Accessor(o))
	object.SetUID(types.UID("00000000-0000-0000-0000-000000000001"))
	object.SetGeneration(0)
	object.SetSelfLink("")
}

func (k *kind) creationErrors(o runtime.Object) field.ErrorList {
	ctx := k.context()
	k.create.PrepareForCreate(ctx, o)
	errs := k.create.Validate(ctx, o)
	if len(errs) == 0 {
		segment := func(name string, prefix bool) []string {
			if prefix {
				return path.IsValidPathSegmentPrefix(name)
			}
			return path.IsValidPathSegmentName(name)
		}
		errs = genericvalidation.ValidateObjectMetaAccessor(must(meta.Accessor(o)), k.create.NamespaceScoped(), segment, field.NewPath("metadata"))
	}
	return errs
}

func (k *kind) updateErrors(o, old runtime.Object) field.ErrorList {
	ctx := k.context()
	object, before := must(meta.Accessor(o)), must(meta.Accessor(old))
	object.SetGeneration(before.GetGeneration())
	k.update.PrepareForUpdate(ctx, o, old)
	if object.GetUID() == "" {
		object.SetUID(before.GetUID())
	}
	errs := genericvalidation.ValidateObjectMetaAccessorUpdate(object, before, field.NewPath("metadata"))
	return append(errs, k.update.ValidateUpdate(ctx, o, old)...)
}

func (k *kind) judge(sent any, old runtime.Object) verdict {
	apiVersion, name := k.gvk.ToAPIVersionAndKind()
	v := verdict{APIVersion: apiVersion, Kind: name, Object: clone(sent), Errors: []string{}}
	if old != nil {
		v.Old = k.written(old)
		sent.(object)["metadata"].(object)["resourceVersion"] = "1"
		v.Object = clone(sent)
	}
	internal, defaulted, err := k.read(sent)
	if err != nil {
		v.Undecodable = err.Error()
		return v
	}
	v.Defaulted = defaulted
	var errs field.ErrorList
	if old == nil {
		k.fill(internal)
		errs = k.creationErrors(internal)
	} else {
		errs = k.updateErrors(internal, old.DeepCopyObject())
	}
	seen := map[string]bool{}
	for _, err := range errs {
		text := fmt.Sprintf("%s %s: %s", err.Type, err.Field, strings.TrimSpace(err.ErrorBody()))
		if !seen[text] {
			seen[text] = true
			v.Errors = append(v.Errors, text)
		}
	}
	if len(errs) == 0 {
		v.Stored = k.written(internal)
	}
	return v
}

func plain(o any) any {
	var value any
	decode(must(json.Marshal(o)), &value)
	return strip(value)
}
