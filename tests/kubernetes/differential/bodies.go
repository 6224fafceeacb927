package main

import "k8s.io/apimachinery/pkg/runtime/schema"

// Random bodies for sequences of writes: few names and values, so that writers meet.

func (r *random) named(gvk schema.GroupVersionKind, body object) object {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	metadata := object{"name": "o", "namespace": "n"}
	if r.once(2) {
		metadata["labels"] = r.strings()
	}
	if r.once(3) {
		metadata["annotations"] = r.strings()
	}
	if r.once(3) {
		finalizers := []any{}
		for _, name := range some(r, "x/f", "x/g") {
			finalizers = append(finalizers, name)
		}
		metadata["finalizers"] = finalizers
	}
	if r.once(5) {
		metadata["ownerReferences"] = []any{object{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": pick(r, "1", "2")}}
	}
	body["apiVersion"], body["kind"], body["metadata"] = apiVersion, kind, metadata
	return body
}

func (r *random) strings() object {
	fields := object{}
	for _, key := range some(r, "a", "b", "c") {
		fields[key] = pick(r, "1", "2")
	}
	return fields
}

// Sets fields with a probability each.
func (r *random) fields(makers map[string]func() any) object {
	made := object{}
	for _, key := range sortedMakers(makers) {
		if r.once(2) {
			made[key] = makers[key]()
		}
	}
	return made
}

func sortedMakers(makers map[string]func() any) []string {
	names := object{}
	for name := range makers {
		names[name] = nil
	}
	return sortedKeys(names)
}

// A list of objects with different names.
func (r *random) list(key string, body func() object, names ...string) []any {
	items := []any{}
	for _, name := range some(r, names...) {
		item := body()
		item[key] = name
		items = append(items, item)
	}
	return items
}

func (r *random) deployment() object {
	return object{"spec": r.fields(map[string]func() any{
		"replicas": func() any { return r.IntN(3) },
		"paused":   func() any { return r.once(2) },
		"selector": func() any { return object{"matchLabels": r.strings()} },
		"strategy": func() any {
			return pick(r, object{"type": "Recreate"}, object{"type": "RollingUpdate", "rollingUpdate": object{"maxSurge": pick[any](r, 1, "25%")}})
		},
		"template": func() any {
			return object{"metadata": object{"labels": r.strings()}, "spec": r.podSpec()}
		},
	})}
}

func (r *random) podBody() object { return object{"spec": r.podSpec()} }

func (r *random) podSpec() any {
	return r.fields(map[string]func() any{
		"containers":     func() any { return r.list("name", r.container, "c1", "c2", "c3") },
		"initContainers": func() any { return r.list("name", r.container, "c1", "c2") },
		"volumes": func() any {
			return r.list("name", func() object {
				return pick(r, object{}, object{"emptyDir": object{}}, object{"configMap": object{"name": "cm", "items": []any{object{"key": "k", "path": pick(r, "p", "q")}}}})
			}, "v1", "v2")
		},
		"nodeSelector":                  func() any { return r.strings() },
		"hostNetwork":                   func() any { return r.once(2) },
		"terminationGracePeriodSeconds": func() any { return r.IntN(3) },
		"tolerations": func() any {
			return []any{object{"key": pick(r, "a", "b"), "operator": "Exists"}}
		},
		"imagePullSecrets": func() any { return r.list("name", func() object { return object{} }, "s1", "s2") },
		"hostAliases": func() any {
			return r.list("ip", func() object { return object{"hostnames": []any{pick(r, "h1", "h2")}} }, "1.1.1.1", "2.2.2.2")
		},
		"topologySpreadConstraints": func() any {
			return r.list("topologyKey", func() object {
				return object{"maxSkew": 1 + r.IntN(2), "whenUnsatisfiable": pick(r, "DoNotSchedule", "ScheduleAnyway")}
			}, "zone", "host")
		},
		"affinity": func() any {
			return object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []any{
				object{"weight": 1 + r.IntN(2), "preference": object{"matchExpressions": []any{object{"key": pick(r, "a", "b"), "operator": "Exists"}}}},
			}}}
		},
		"securityContext": func() any { return object{"runAsUser": r.IntN(2), "supplementalGroups": []any{r.IntN(2)}} },
	})
}

func (r *random) container() object {
	return r.fields(map[string]func() any{
		"image":   func() any { return pick(r, "i1", "i2") },
		"command": func() any { return []any{pick(r, "x", "y")} },
		"env": func() any {
			return r.list("name", func() object {
				return pick(r, object{"value": pick(r, "1", "2")}, object{"valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}})
			}, "X", "Y", "Z")
		},
		"envFrom": func() any { return []any{object{"configMapRef": object{"name": pick(r, "a", "b")}}} },
		"ports": func() any {
			ports := []any{}
			for _, number := range some(r, 80, 81) {
				port := object{"containerPort": number}
				if r.once(2) {
					port["protocol"] = pick(r, "TCP", "UDP")
				}
				if r.once(2) {
					port["name"] = pick(r, "http", "web")
				}
				ports = append(ports, port)
			}
			return ports
		},
		"volumeMounts": func() any {
			return r.list("mountPath", func() object { return object{"name": pick(r, "v1", "v2")} }, "/a", "/b")
		},
		"resources": func() any {
			return object{"limits": object{"cpu": pick(r, "1", "2")}, "requests": object{"memory": pick(r, "1Gi", "2Gi")}}
		},
		"tty": func() any { return r.once(2) },
		"livenessProbe": func() any {
			return object{"httpGet": object{"port": pick[any](r, 80, "http")}, "periodSeconds": 1 + r.IntN(2)}
		},
		"securityContext": func() any { return object{"capabilities": object{"add": []any{pick(r, "A", "B")}}} },
	})
}

func (r *random) service() object {
	return object{"spec": r.fields(map[string]func() any{
		"ports": func() any {
			ports := []any{}
			for _, number := range some(r, 80, 81) {
				port := object{"port": number, "targetPort": pick[any](r, 8080, "http")}
				if r.once(2) {
					port["protocol"] = pick(r, "TCP", "UDP")
				}
				if r.once(2) {
					port["name"] = pick(r, "http", "web")
				}
				ports = append(ports, port)
			}
			return ports
		},
		"selector":        func() any { return r.strings() },
		"type":            func() any { return pick(r, "ClusterIP", "NodePort") },
		"externalIPs":     func() any { return []any{pick(r, "1.1.1.1", "2.2.2.2")} },
		"sessionAffinity": func() any { return pick(r, "None", "ClientIP") },
		"sessionAffinityConfig": func() any {
			return object{"clientIP": object{"timeoutSeconds": r.IntN(3)}}
		},
	})}
}

func (r *random) configMap() object {
	return r.fields(map[string]func() any{
		"data":       func() any { return r.strings() },
		"binaryData": func() any { return object{pick(r, "x", "y"): pick(r, "AA==", "AQ==")} },
		"immutable":  func() any { return r.once(2) },
	})
}

func (r *random) ingress() object {
	backend := func() any {
		return object{"service": object{"name": pick(r, "s1", "s2"), "port": object{"number": 80 + r.IntN(2)}}}
	}
	return object{"spec": r.fields(map[string]func() any{
		"ingressClassName": func() any { return pick(r, "a", "b") },
		"defaultBackend":   backend,
		"tls":              func() any { return []any{object{"hosts": []any{pick(r, "h1", "h2")}, "secretName": "s"}} },
		"rules": func() any {
			return r.list("host", func() object {
				return object{"http": object{"paths": []any{object{"path": pick(r, "/a", "/b"), "pathType": "Prefix", "backend": backend()}}}}
			}, "h1", "h2")
		},
	})}
}

// Schemas of custom resources with every marker of lists and maps.
var customSchemas = []string{
	`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"numbers":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
		"atomic":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},
		"plain":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}},
		"whole":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
		"granular":{"type":"object","additionalProperties":{"type":"string"}},
		"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
		"either":{"x-kubernetes-int-or-string":true},
		"maybe":{"type":"string","nullable":true},
		"flag":{"type":"boolean"},"ratio":{"type":"number"},"count":{"type":"integer"}}}}}`,
	`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"byName":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{
			"name":{"type":"string"},"value":{"type":"string"},"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"nested":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"v":{"type":"string"}}}}}}},
		"byTwo":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","protocol"],"items":{"type":"object","required":["port"],"properties":{
			"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},"label":{"type":"string"}}}},
		"byFlag":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["on"],"items":{"type":"object","required":["on"],"properties":{
			"on":{"type":"boolean"},"label":{"type":"string"}}}}}}}}`,
	`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-map-type":"atomic","properties":{
		"a":{"type":"string"},"b":{"type":"object","properties":{"c":{"type":"string"}}}}}}}`,
	`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
		"known":{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"integer"}}},
		"maps":{"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"string"},"list":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}},
		"lists":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}}}`,
}

// A random value of a structural schema; now and then one that does not fit.
func (r *random) ofSchema(s object) any {
	if r.once(60) {
		return pick[any](r, "odd", 7, object{}, []any{})
	}
	if s["x-kubernetes-int-or-string"] == true {
		return pick[any](r, 1, 2, "x")
	}
	switch s["type"] {
	case "string":
		return pick(r, "a", "b", "c")
	case "integer":
		return r.IntN(3)
	case "number":
		return pick[any](r, 0.5, 1.5, 2)
	case "boolean":
		return r.once(2)
	case "array":
		return r.ofItems(s)
	case "object":
		made := object{}
		if properties, ok := s["properties"].(object); ok {
			for _, key := range sortedKeys(properties) {
				if r.once(2) {
					made[key] = r.ofSchema(properties[key].(object))
				}
			}
		}
		if additional, ok := s["additionalProperties"].(object); ok {
			for _, key := range some(r, "k1", "k2", "k3") {
				made[key] = r.ofSchema(additional)
			}
		}
		if s["x-kubernetes-preserve-unknown-fields"] == true {
			for _, key := range some(r, "u1", "u2") {
				made[key] = pick[any](r, 1, "x", object{"p": 1}, object{"q": []any{1, 2}}, []any{"z"})
			}
		}
		return made
	}
	return nil
}

// Items of a list; keys and members of sets differ, but for a rare mistake.
func (r *random) ofItems(s object) any {
	items, seen := []any{}, map[string]bool{}
	for range r.IntN(4) {
		item := r.ofSchema(s["items"].(object))
		identity := ""
		switch s["x-kubernetes-list-type"] {
		case "set":
			identity = text(item)
		case "map":
			for _, key := range s["x-kubernetes-list-map-keys"].([]any) {
				fields, ok := item.(object)
				if !ok {
					continue
				}
				if _, ok := fields[key.(string)]; !ok && !r.once(30) && key != "protocol" {
					fields[key.(string)] = r.ofSchema(s["items"].(object)["properties"].(object)[key.(string)].(object))
				}
				value := fields[key.(string)]
				if key == "protocol" && value == nil {
					value = "TCP"
				}
				identity += text(value) + "/"
			}
		default:
			identity = text(len(items))
		}
		if !seen[identity] || r.once(40) {
			seen[identity] = true
			items = append(items, item)
		}
	}
	return items
}
