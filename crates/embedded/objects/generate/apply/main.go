// Replays sequences of writes (apply, update, strategic merge patch) through Kubernetes' own field manager and prints
// what each step leaves behind. `src/apply/tests/recorded.json` was recorded with it: `go run . cases.json`.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	ac "k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

type creater struct{}

func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	o, err := clientscheme.Scheme.New(gvk)
	if err == nil {
		o.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return o, err
}

type convertor struct{}

func (convertor) Convert(in, out, ctx interface{}) error { return fmt.Errorf("no") }
func (convertor) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (convertor) ConvertFieldLabel(gvk schema.GroupVersionKind, l, v string) (string, string, error) {
	return l, v, nil
}

type noDefault struct{}

func (noDefault) Default(runtime.Object) {}

type Step struct {
	Op      string          `json:"op"`
	Manager string          `json:"manager"`
	Force   bool            `json:"force"`
	Object  json.RawMessage `json:"object"`
}

func main() {
	var cases [][]Step
	data, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(data, &cases); err != nil {
		panic(err)
	}
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	var out []any
	for _, c := range cases {
		fm, err := managedfields.NewDefaultFieldManager(ac.NewTypeConverter(clientscheme.Scheme), convertor{}, noDefault{}, creater{}, gvk, gvk.GroupVersion(), "", nil)
		if err != nil {
			panic(err)
		}
		var live runtime.Object
		var results []any
		for _, s := range c {
			base := live
			if base == nil {
				base = &apps.Deployment{TypeMeta: meta.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}}
			}
			if s.Op == "apply" {
				u := &unstructured.Unstructured{}
				if err := json.Unmarshal(s.Object, &u.Object); err != nil {
					panic(err)
				}
				res, err := fm.Apply(base, u, s.Manager, s.Force)
				if err != nil {
					results = append(results, map[string]any{"error": err.Error()})
					continue
				}
				if res != nil {
					live = typed(res)
				}
			} else if s.Op == "smp" {
				d, _ := json.Marshal(base)
				var mm map[string]any
				json.Unmarshal(d, &mm)
				d, _ = json.Marshal(strip(mm))
				p, err := strategicpatch.StrategicMergePatch(d, s.Object, apps.Deployment{})
				if err != nil {
					results = append(results, map[string]any{"error": err.Error()})
					continue
				}
				obj := &apps.Deployment{}
				json.Unmarshal(p, obj)
				res, err := fm.Update(base, obj, s.Manager)
				if err != nil {
					panic(err)
				}
				live = typed(res)
			} else {
				obj := &apps.Deployment{}
				if err := json.Unmarshal(s.Object, obj); err != nil {
					panic(err)
				}
				if live != nil {
					obj.ManagedFields = live.(*apps.Deployment).ManagedFields
				}
				res, err := fm.Update(base, obj, s.Manager)
				if err != nil {
					panic(err)
				}
				live = typed(res)
			}
			d := live.(*apps.Deployment).DeepCopy()
			for i := range d.ManagedFields {
				d.ManagedFields[i].Time = nil
			}
			results = append(results, d)
		}
		out = append(out, results)
	}
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
}

func typed(o runtime.Object) runtime.Object {
	if d, ok := o.(*apps.Deployment); ok {
		return d
	}
	b, _ := json.Marshal(o)
	d := &apps.Deployment{}
	if err := json.Unmarshal(b, d); err != nil {
		panic(err)
	}
	return d
}

func strip(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if e == nil {
				delete(x, k)
			} else {
				x[k] = strip(e)
			}
		}
	case []any:
		for i := range x {
			x[i] = strip(x[i])
		}
	}
	return v
}
