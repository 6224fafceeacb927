package main

import (
	"encoding/json"
	"sort"
)

func sortedKeys(value object) []string {
	keys := make([]string, 0, len(value))
	for key := range value {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func text(value any) string { return string(must(json.Marshal(value))) }
