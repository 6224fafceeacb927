package framework

import (
	"fmt"
	"os"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// Writes the row of the suite in the table of docs/upstream.md, and the names of specs that failed. What an ordered container
// leaves out after a failure has failed too.
var _ = ginkgo.ReportAfterSuite("row", func(report ginkgo.Report) {
	path := os.Getenv("QUINTET_UPSTREAM_TABLE")
	if path == "" {
		return
	}
	var specs, passed, notApplicable int
	var failed []string
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		specs++
		switch {
		case spec.State == types.SpecStateSkipped && spec.Failure.Message == "":
			notApplicable++
		case spec.State == types.SpecStatePassed:
			passed++
		default:
			failed = append(failed, spec.FullText())
		}
	}
	row := fmt.Sprintf("| `%s` | %d | %d | %d | %d |\n", os.Getenv("KUEUE_SUITE"), specs, passed, notApplicable, len(failed))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	defer file.Close()
	_, _ = file.WriteString(row)
	if len(failed) > 0 {
		fmt.Println("failed specs:\n  " + strings.Join(failed, "\n  "))
	}
})
