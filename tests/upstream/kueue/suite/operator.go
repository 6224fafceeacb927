package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/quintet"
)

// namespace is where the operator is installed.
const namespace = "kueue-system"

// operator is Quintet's, with what a suite wants of its manager.
type operator struct {
	directory string
	flags     []string
	webhooks  string
	command   *exec.Cmd
	ended     chan error
	log       *os.File
	gates     string
	// withFailureRecovery is whether the gate of failure recovery is on: suites set it up without asking.
	withFailureRecovery bool
	// withSpark is whether the gate of SparkApplications is on: suites set their webhook up without asking.
	withSpark bool
	// withoutPodsReady is whether the job framework does not wait for pods.
	withoutPodsReady bool
}

func createNamespace(ctx context.Context, cluster *rest.Config) error {
	k8sClient, err := client.New(cluster, client.Options{})
	if err != nil {
		return err
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	return client.IgnoreAlreadyExists(k8sClient.Create(ctx, object))
}

func newOperator(
	wanted quintet.Wanted, webhooks *envtest.WebhookInstallOptions, scheme *runtime.Scheme, kubeconfig string,
) (*operator, error) {
	directory, err := os.MkdirTemp("", "quintet-kueue-")
	if err != nil {
		return nil, err
	}
	configuration := configuration(wanted, scheme)
	if configuration.VisibilityServer, err = visibilityServer(); err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(document(wanted, configuration))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(directory, "config.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	path := os.Getenv("QUINTET_OPERATOR_LOG")
	if path == "" {
		path = filepath.Join(directory, "log")
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	flags := []string{
		"operator", "--components", "queue", "--controllers", controllers(wanted), "--namespace", namespace,
		"--config", filepath.Join(directory, "config.yaml"), "--kubeconfig", kubeconfig,
		"--leader-elect=false", "--log-format", "text", "--log-level", "info",
		"--webhook-host", webhooks.LocalServingHost, "--webhook-port", fmt.Sprint(webhooks.LocalServingPort),
		"--webhook-cert-dir", webhooks.LocalServingCertDir,
	}
	address := net.JoinHostPort(webhooks.LocalServingHost, fmt.Sprint(webhooks.LocalServingPort))
	withoutPodsReady := wanted.Jobs && !wanted.JobOptions.WaitForPodsReady
	return &operator{
		directory: directory, flags: flags, webhooks: address, log: log, withoutPodsReady: withoutPodsReady,
		withFailureRecovery: wanted.FailureRecovery != nil,
		withSpark:           wanted.Frameworks.Has("sparkoperator.k8s.io/sparkapplication"),
	}, nil
}

// controllers names the parts that the manager has.
func controllers(wanted quintet.Wanted) string {
	names := []string{"-*"}
	if wanted.Configuration != nil {
		names = append(names, "queue-status", "workload", "protection", "priority-class")
	}
	if wanted.Scheduler {
		names = append(names, "scheduler")
	}
	if wanted.Topology {
		names = append(names, "topology", "node-failure")
	}
	if wanted.FailureRecovery != nil {
		names = append(names, "failure-recovery")
	}
	if wanted.Provisioning {
		names = append(names, "provisioning-request")
	}
	if wanted.MultiKueue != nil {
		names = append(names, "multikueue")
	}
	if wanted.Jobs {
		names = append(names, "jobs")
	}
	return strings.Join(names, ",")
}

// document is Quintet's own for what Kueue's configuration has no setting for, and else Kueue's.
func document(wanted quintet.Wanted, configuration *config.Configuration) any {
	if wanted.FailureRecovery == nil {
		return configuration
	}
	recovery := map[string]any{"gracePeriod": wanted.FailureRecovery.String()}
	return map[string]any{
		"apiVersion": "config.quintet.dev/v1alpha1", "kind": "Configuration",
		"queue": map[string]any{"failureRecovery": recovery},
	}
}

// configuration is that of the core controllers, with what the suite hands to other parts in Go.
func configuration(wanted quintet.Wanted, scheme *runtime.Scheme) *config.Configuration {
	configuration := wanted.Configuration
	if configuration == nil || configuration.Integrations == nil {
		// Some suites set their core controllers up with nothing.
		configuration = &config.Configuration{}
		scheme.Default(configuration)
	}
	configuration.TypeMeta = metav1.TypeMeta{APIVersion: config.SchemeGroupVersion.String(), Kind: "Configuration"}
	if wanted.Transformations != nil || wanted.QuotaCheckStrategy != nil {
		if configuration.Resources == nil {
			configuration.Resources = &config.Resources{}
		}
		if wanted.Transformations != nil {
			configuration.Resources.Transformations = wanted.Transformations
		}
		if wanted.QuotaCheckStrategy != nil {
			configuration.Resources.QuotaCheckStrategy = wanted.QuotaCheckStrategy
		}
	}
	if wanted.MultiKueue != nil {
		configuration.MultiKueue = wanted.MultiKueue
	}
	if wanted.MetricsOfClusterQueues {
		configuration.Metrics.EnableClusterQueueResources = true
	}
	// In Go, no strategies stand for both.
	if sharing := configuration.FairSharing; sharing != nil && len(sharing.PreemptionStrategies) == 0 {
		sharing.PreemptionStrategies = []config.PreemptionStrategy{config.LessThanOrEqualToFinalShare, config.LessThanInitialShare}
	}
	switch {
	case len(wanted.Frameworks) > 0:
		configuration.Integrations.Frameworks = sets.List(wanted.Frameworks)
	case wanted.WithoutWebhook != "":
		configuration.Integrations.Frameworks = []string{wanted.WithoutWebhook}
	}
	options := wanted.JobOptions
	if wanted.Jobs || len(wanted.Frameworks) > 0 {
		configuration.ManageJobsWithoutQueueName = options.ManageJobsWithoutQueueName
		configuration.Integrations.ExternalFrameworks = options.ExternalFrameworks
		configuration.Integrations.LabelKeysToCopy = options.LabelKeysToCopy
		copyAnnotations(configuration, options.AnnotationsToCopy)
		if options.Namespaces != nil {
			configuration.ManagedJobsNamespaceSelector = options.Namespaces
		}
		if options.AfterDeactivated != nil {
			if configuration.ObjectRetentionPolicies == nil {
				configuration.ObjectRetentionPolicies = &config.ObjectRetentionPolicies{}
			}
			if configuration.ObjectRetentionPolicies.Workloads == nil {
				configuration.ObjectRetentionPolicies.Workloads = &config.WorkloadRetentionPolicy{}
			}
			after := &metav1.Duration{Duration: *options.AfterDeactivated}
			configuration.ObjectRetentionPolicies.Workloads.AfterDeactivatedByKueue = after
		}
	}
	return configuration
}

// copyAnnotations lets Workloads have annotations of their jobs. In the configuration, these are those that metrics are
// labelled by.
func copyAnnotations(configuration *config.Configuration, annotations []string) {
	workload := config.SourceKindWorkload
	for index, annotation := range annotations {
		isKnown := slices.ContainsFunc(configuration.Metrics.CustomLabels, func(label config.ControllerMetricsCustomLabel) bool {
			return label.SourceAnnotationKey == annotation
		})
		if !isKnown {
			configuration.Metrics.CustomLabels = append(configuration.Metrics.CustomLabels, config.ControllerMetricsCustomLabel{
				Name: fmt.Sprintf("copied_%d", index), SourceAnnotationKey: annotation, SourceKind: &workload,
				TrackedValues: []string{"any"},
			})
		}
	}
}

// errEnded says that the operator did not start: it refuses some gates without others.
var errEnded = errors.New("the operator ended")

// follow makes the operator one with the gates of this process.
func (o *operator) follow() error {
	gates := o.wantedGates()
	if o.command != nil && gates == o.gates {
		return nil
	}
	o.end()
	health, err := freeAddress()
	if err != nil {
		return err
	}
	o.gates = gates
	flags := append(slices.Clone(o.flags), "--feature-gates", gates,
		"--health-probe-bind-address", health, "--metrics-bind-address", health)
	fmt.Fprintf(o.log, "==== %s %s\n", os.Getenv("QUINTET"), strings.Join(flags, " "))
	command := exec.Command(os.Getenv("QUINTET"), flags...)
	command.Stdout, command.Stderr = o.log, o.log
	if err := command.Start(); err != nil {
		return err
	}
	o.command, o.ended = command, make(chan error, 1)
	go func() { o.ended <- command.Wait() }()
	quintet.SetMetricsAddress(health)
	return o.awaitReady(health)
}

func (o *operator) awaitReady(health string) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-o.ended:
			o.command = nil
			return fmt.Errorf("%w (%w); its log is %s", errEnded, err, o.log.Name())
		default:
		}
		if response, err := http.Get("http://" + health + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("the operator did not become ready; its log is %s", o.log.Name())
}

func (o *operator) wantedGates() string {
	gates := features.Gates()
	if o.withoutPodsReady {
		gates[string(features.DisableWaitForPodsReady)] = true
	}
	if o.withFailureRecovery {
		gates[string(features.FailureRecoveryPolicy)] = true
	}
	if o.withSpark {
		gates[string(features.SparkApplicationIntegration)] = true
	}
	if !gates[string(features.KueueDRAIntegration)] {
		// No program starts with gates that need one that is off; specs switch the one only.
		for name := range gates {
			if strings.HasPrefix(name, string(features.KueueDRAIntegration)) {
				gates[name] = false
			}
		}
	}
	switches := make([]string, 0, len(gates))
	for name, on := range gates {
		// Gates of 0.19 that are no longer there are on for good.
		if knownGates().Has(name) {
			switches = append(switches, fmt.Sprintf("%s=%t", name, on))
		}
	}
	slices.Sort(switches)
	return strings.Join(switches, ",")
}

// knownGates are those of Quintet.
var knownGates = sync.OnceValue(func() sets.Set[string] {
	text, err := exec.Command(os.Getenv("QUINTET"), "components", "-o", "json").Output()
	var components []struct {
		FeatureGates []string `json:"featureGates"`
	}
	if err == nil {
		err = json.Unmarshal(text, &components)
	}
	if err != nil {
		ginkgo.Fail(fmt.Sprintf("cannot list the gates of Quintet: %v", err))
	}
	gates := sets.New[string]()
	for _, component := range components {
		gates.Insert(component.FeatureGates...)
	}
	return gates
})

func (o *operator) stop() {
	o.end()
	_ = o.log.Close()
	_ = os.RemoveAll(o.directory)
}

func (o *operator) end() {
	if o.command != nil {
		_ = o.command.Process.Signal(syscall.SIGTERM)
		<-o.ended
		o.command = nil
	}
}

// visibilityServer is that of an operator that is not the only one on this machine.
func visibilityServer() (*config.VisibilityServerConfiguration, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	address, port := "127.0.0.1", int32(listener.Addr().(*net.TCPAddr).Port)
	return &config.VisibilityServerConfiguration{BindAddress: &address, BindPort: &port}, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
