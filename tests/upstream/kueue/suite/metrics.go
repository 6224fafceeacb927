package quintet

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metricsAddress is where the operator serves its metrics.
var metricsAddress atomic.Value

// SetMetricsAddress tells where the operator serves its metrics.
func SetMetricsAddress(address string) { metricsAddress.Store(address) }

// GetGaugeMetricValue returns the value that the operator exposes for the same name and labels, 0 without one.
func GetGaugeMetricValue(metric prometheus.Metric) (float64, error) {
	exposed, err := exposed(metric)
	return exposed.GetGauge().GetValue(), err
}

// GetCounterMetricValue returns the value that the operator exposes for the same name and labels, 0 without one.
func GetCounterMetricValue(metric prometheus.Metric) (float64, error) {
	exposed, err := exposed(metric)
	return exposed.GetCounter().GetValue(), err
}

// GetHistogramMetricCount returns how many observations the operator exposes for the same name and labels.
func GetHistogramMetricCount(observer prometheus.Observer) (uint64, error) {
	metric, isMetric := observer.(prometheus.Metric)
	if !isMetric {
		return 0, fmt.Errorf("%T is no metric", observer)
	}
	exposed, err := exposed(metric)
	return exposed.GetHistogram().GetSampleCount(), err
}

// A description has no accessor for the name.
var nameOf = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*")`)

func exposed(metric prometheus.Metric) (*dto.Metric, error) {
	var own dto.Metric
	if err := metric.Write(&own); err != nil {
		return nil, err
	}
	metrics, err := family(metric.Desc())
	if err != nil {
		return nil, err
	}
	for _, other := range metrics {
		if hasLabels(other, own.Label) && len(other.Label) == len(own.Label) {
			return other, nil
		}
	}
	return nil, nil
}

// Collect returns what the operator exposes of the same name with these labels, whatever others there are.
func Collect(collector prometheus.Collector, labels map[string]string) []*dto.Metric {
	descriptions := make(chan *prometheus.Desc, 1)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	wanted := make([]*dto.LabelPair, 0, len(labels))
	for name, value := range labels {
		wanted = append(wanted, &dto.LabelPair{Name: &name, Value: &value})
	}
	var found []*dto.Metric
	for description := range descriptions {
		metrics, err := family(description)
		if err != nil {
			panic(err)
		}
		for _, metric := range metrics {
			if hasLabels(metric, wanted) {
				found = append(found, metric)
			}
		}
	}
	return found
}

// family reads all that the operator exposes of a name.
func family(description *prometheus.Desc) ([]*dto.Metric, error) {
	match := nameOf.FindStringSubmatch(description.String())
	if match == nil {
		return nil, fmt.Errorf("no name in %s", description)
	}
	name, err := strconv.Unquote(match[1])
	if err != nil {
		return nil, err
	}
	response, err := http.Get(fmt.Sprintf("http://%s/metrics", metricsAddress.Load()))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	return families[name].GetMetric(), nil
}

func hasLabels(metric *dto.Metric, labels []*dto.LabelPair) bool {
	values := map[string]string{}
	for _, label := range metric.Label {
		values[label.GetName()] = label.GetValue()
	}
	for _, label := range labels {
		if values[label.GetName()] != label.GetValue() {
			return false
		}
	}
	return true
}

// AreIgnored is whether metrics are left out of the comparison.
func AreIgnored() bool { return os.Getenv("KUEUE_WITHOUT_METRICS") != "" }
