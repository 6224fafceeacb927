package main

import (
	"encoding/json"
	"math/rand/v2"
)

type object = map[string]any

// random makes JSON values from one seeded source.
type random struct{ *rand.Rand }

// True once in `n` times.
func (r *random) once(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// Some items of a list, in random order.
func some[T any](r *random, from ...T) []T {
	all := append([]T{}, from...)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:r.IntN(len(all)+1)]
}

// A value that shares nothing with the original.
func clone(value any) any {
	var copied any
	decode(must(json.Marshal(value)), &copied)
	return copied
}

func decode(data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		panic(err)
	}
}

// Leaves parts of a value out: each field and item with a probability of one in `n`.
func (r *random) thin(value any, n int, keep map[string]bool) any {
	switch value := value.(type) {
	case object:
		thinned := object{}
		for _, key := range sortedKeys(value) {
			if keep[key] || !r.once(n) {
				thinned[key] = r.thin(value[key], n, keep)
			}
		}
		return thinned
	case []any:
		thinned := []any{}
		for _, item := range value {
			if !r.once(2 * n) {
				thinned = append(thinned, r.thin(item, n, keep))
			}
		}
		return thinned
	}
	return value
}

// Changes one random place of a value, each leaf with the same probability: a value becomes another of its JSON type, an
// item is doubled, a field is removed.
func (r *random) mutate(value any) any {
	switch value := value.(type) {
	case object:
		if len(value) == 0 {
			return value
		}
		keys := sortedKeys(value)
		key := keys[r.weighted(len(keys), func(i int) int { return leaves(value[keys[i]]) })]
		if r.once(8) {
			delete(value, key)
		} else {
			value[key] = r.mutate(value[key])
		}
	case []any:
		if len(value) == 0 {
			return value
		}
		index := r.weighted(len(value), func(i int) int { return leaves(value[i]) })
		if r.once(6) {
			return append(value, clone(value[index]))
		}
		value[index] = r.mutate(value[index])
	case string:
		return pick(r, texts...)
	case float64, int:
		return pick(r, numbers...)
	case bool:
		return !value
	}
	return value
}

// One of `count` indexes, each with a probability by its weight.
func (r *random) weighted(count int, weight func(int) int) int {
	total := 0
	for i := range count {
		total += weight(i)
	}
	at := r.IntN(total)
	for i := range count {
		if at -= weight(i); at < 0 {
			return i
		}
	}
	return count - 1
}

func leaves(value any) int {
	count := 0
	switch value := value.(type) {
	case object:
		for _, field := range value {
			count += leaves(field)
		}
	case []any:
		for _, item := range value {
			count += leaves(item)
		}
	}
	return max(count, 1)
}

var numbers = []any{-1, 0, 1, 2, 3, 30, 80, 443, 1000, 65535, 65536, 100000}

var texts = []any{
	"", "a", "b", "web", "A", "a_b", "-a", "a.b", "example.com/x", "x/y/z", "1", "10", "0%", "50%", "-5", "1Gi", "500m",
	"Always", "Never", "OnFailure", "IfNotPresent", "TCP", "UDP", "HTTP", "ClusterIP", "NodePort", "ExternalName", "None",
	"Recreate", "RollingUpdate", "OnDelete", "Parallel", "In", "Exists", "NoSchedule", "kube-system", "10.0.0.1", "::1", "/a", "/a/../b", "../a",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "*/5 * * * *", "not a cron", "Local", "Cluster",
}
