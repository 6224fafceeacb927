// Records what Kubernetes' own packages do with random input, for comparison with `crates/embedded/objects`:
//
//	differential --out DIRECTORY [--seed N] [--sequences N] [--objects N] [--expressions N]
//
// Each file has one case per line. The same seed makes the same cases.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	out := pflag.String("out", "", "the directory to write to")
	seed := pflag.Uint64("seed", 1, "the seed of all random input")
	sequences := pflag.Int("sequences", 50_000, "how many sequences of writes to record")
	objects := pflag.Int("objects", 50_000, "how many objects to default and validate")
	expressions := pflag.Int("expressions", 50_000, "how many CEL expressions to evaluate")
	pflag.Parse()
	// Differences between Kubernetes' own two validations are logged; hand-written validation is authoritative.
	klog.SetLogger(logr.Discard())
	for _, part := range []struct {
		name   string
		count  int
		record func(*random) any
	}{
		{"sequences", *sequences, recordSequence()},
		{"objects", *objects, recordObject()},
		{"expressions", *expressions, recordExpression()},
	} {
		r := &random{rand.New(rand.NewPCG(*seed, uint64(len(part.name))))}
		if err := write(filepath.Join(*out, part.name+".jsonl"), part.count, func() any { return part.record(r) }); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

// Writes one JSON value per line.
func write(path string, count int, next func() any) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	for range count {
		if err := encoder.Encode(next()); err != nil {
			return err
		}
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// Stops on what cannot happen unless this program is wrong.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
