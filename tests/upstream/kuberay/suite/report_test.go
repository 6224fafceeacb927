package ray

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// tally counts the specs of one file. What an ordered container leaves out after a failure has failed too.
type tally struct {
	specs, passed, notApplicable, failed int
}

func (t *tally) add(spec types.SpecReport, isApplicable bool) {
	t.specs++
	switch {
	case !isApplicable:
		t.notApplicable++
	case spec.State == types.SpecStatePassed:
		t.passed++
	default:
		t.failed++
	}
}

// Writes the rows of the table in docs/upstream.md, one for each file of specs.
var _ = ReportAfterSuite("table", func(report Report) {
	path := os.Getenv("QUINTET_UPSTREAM_TABLE")
	if path == "" {
		return
	}
	tallies, sum := map[string]*tally{}, &tally{}
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		file := filepath.Base(spec.LeafNodeLocation.FileName)
		if tallies[file] == nil {
			tallies[file] = &tally{}
		}
		isApplicable := spec.State != types.SpecStateSkipped || spec.Failure.Message != ""
		tallies[file].add(spec, isApplicable)
		sum.add(spec, isApplicable)
	}
	files := make([]string, 0, len(tallies))
	for file := range tallies {
		files = append(files, file)
	}
	sort.Strings(files)
	var table strings.Builder
	row := func(name string, t *tally) {
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d |\n", name, t.specs, t.passed, t.notApplicable, t.failed)
	}
	for _, file := range files {
		row("`controllers/ray/"+file+"`", tallies[file])
	}
	row("all", sum)
	if err := os.WriteFile(path, []byte(table.String()), 0o600); err != nil {
		Fail(err.Error())
	}
})
