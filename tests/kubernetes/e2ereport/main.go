// Command e2ereport reads reports of Kubernetes' end-to-end suite and writes a table of its conformance specs.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

const header = `<!-- Written by ` + "`make conformance-e2e`" + `; do not edit. -->

# Kubernetes' conformance suite

The conformance specs of Kubernetes %s on ` + "`quintet up`" + `, with kube-controller-manager and kube-scheduler of that version for
what the embedded API does not have, and with simulated nodes. Nodes that run nothing cannot show what containers do: specs that need to
know are not applicable. ` + "`make conformance-e2e`" + ` runs the others again.

`

// exclusion is a reason why specs are not applicable, and which.
type exclusion struct {
	reason   string
	patterns []*regexp.Regexp
}

// spec is what became of one conformance spec in all reports.
type spec struct {
	name, sig string
	state     types.SpecState
	failure   string
}

func main() {
	excluded := flag.String("not-applicable", "", "a file of reasons, each followed by indented patterns of spec names")
	version := flag.String("version", "", "the version of Kubernetes")
	printSkip := flag.Bool("print-skip", false, "only print one pattern for all specs that are not applicable")
	flag.Parse()
	if err := run(*excluded, *version, *printSkip, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(excluded, version string, printSkip bool, reports []string) error {
	exclusions, err := readExclusions(excluded)
	if err != nil {
		return err
	}
	if printSkip {
		fmt.Println(skipPattern(exclusions))
		return nil
	}
	specs, err := readReports(reports)
	if err != nil {
		return err
	}
	text, failed, err := table(specs, exclusions)
	if err != nil {
		return err
	}
	fmt.Printf(header, version)
	fmt.Print(text)
	if failed > 0 {
		return fmt.Errorf("%d specs failed", failed)
	}
	return nil
}

func readExclusions(path string) ([]exclusion, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []exclusion
	for number, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			all = append(all, exclusion{reason: trimmed})
		case len(all) == 0:
			return nil, fmt.Errorf("%s:%d: a pattern without a reason", path, number+1)
		default:
			pattern, err := regexp.Compile(trimmed)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
			}
			last := &all[len(all)-1]
			last.patterns = append(last.patterns, pattern)
		}
	}
	return all, nil
}

func skipPattern(exclusions []exclusion) string {
	var patterns []string
	for _, one := range exclusions {
		for _, pattern := range one.patterns {
			patterns = append(patterns, pattern.String())
		}
	}
	return strings.Join(patterns, "|")
}

// readReports merges reports: what ran in one was skipped in the others.
func readReports(paths []string) (map[string]spec, error) {
	specs := map[string]spec{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var suites []types.Report
		if err := json.Unmarshal(text, &suites); err != nil {
			return nil, fmt.Errorf("%s is no report: %w", path, err)
		}
		for _, suite := range suites {
			for _, found := range suite.SpecReports {
				name := found.FullText()
				if found.LeafNodeType != types.NodeTypeIt || !strings.Contains(name, "[Conformance]") {
					continue
				}
				known, isKnown := specs[name]
				if !isKnown || known.state == types.SpecStateSkipped {
					specs[name] = spec{name: name, sig: sigOf(name), state: found.State, failure: found.Failure.Message}
				}
			}
		}
	}
	if len(specs) == 0 {
		return nil, errors.New("the reports have no conformance specs")
	}
	return specs, nil
}

func sigOf(name string) string {
	sig, _, _ := strings.Cut(strings.TrimPrefix(name, "[sig-"), "]")
	return sig
}

func reasonOf(name string, exclusions []exclusion) string {
	for _, one := range exclusions {
		for _, pattern := range one.patterns {
			if pattern.MatchString(name) {
				return one.reason
			}
		}
	}
	return ""
}

// table writes the document; it also returns how many specs failed.
func table(specs map[string]spec, exclusions []exclusion) (string, int, error) {
	names := make([]string, 0, len(specs))
	for name := range specs {
		names = append(names, name)
	}
	sort.Strings(names)
	type counts struct{ passed, failed, excluded int }
	bySig := map[string]*counts{}
	var total counts
	var failures []spec
	excluded := map[string][]string{}
	for _, name := range names {
		one := specs[name]
		if bySig[one.sig] == nil {
			bySig[one.sig] = &counts{}
		}
		switch reason := reasonOf(name, exclusions); {
		case reason != "":
			bySig[one.sig].excluded++
			total.excluded++
			excluded[reason] = append(excluded[reason], name)
		case one.state == types.SpecStatePassed:
			bySig[one.sig].passed++
			total.passed++
		case one.state.Is(types.SpecStateFailureStates):
			bySig[one.sig].failed++
			total.failed++
			failures = append(failures, one)
		default:
			return "", 0, fmt.Errorf("%q did not run, and no reason is given", name)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| sig | passed | failed | not applicable |\n|---|---|---|---|\n")
	sigs := make([]string, 0, len(bySig))
	for sig := range bySig {
		sigs = append(sigs, sig)
	}
	sort.Strings(sigs)
	for _, sig := range sigs {
		fmt.Fprintf(&out, "| %s | %d | %d | %d |\n", sig, bySig[sig].passed, bySig[sig].failed, bySig[sig].excluded)
	}
	fmt.Fprintf(&out, "| **all** | **%d** | **%d** | **%d** |\n", total.passed, total.failed, total.excluded)
	if len(failures) > 0 {
		fmt.Fprintf(&out, "\n## Failed\n\n| spec | failure |\n|---|---|\n")
		for _, one := range failures {
			fmt.Fprintf(&out, "| %s | %s |\n", cell(short(one.name)), cell(oneLine(one.failure)))
		}
	}
	fmt.Fprintf(&out, "\n## Not applicable\n")
	for _, one := range exclusions {
		if len(excluded[one.reason]) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n%s:\n\n", one.reason)
		for _, name := range excluded[one.reason] {
			fmt.Fprintf(&out, "- %s\n", short(name))
		}
	}
	return out.String(), total.failed, nil
}

var marks = regexp.MustCompile(` *\[(Conformance|NodeConformance|LinuxOnly|Slow|Serial|MinimumKubeletVersion:[0-9.]+)\]`)

func short(name string) string {
	return strings.TrimSpace(marks.ReplaceAllString(name, ""))
}

func cell(text string) string {
	return strings.ReplaceAll(text, "|", "\\|")
}

func oneLine(text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}
