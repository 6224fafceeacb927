// Package quintet records what a suite of Kueue sets its manager up with. The manager is never started: Quintet's operator
// runs in its place, with the same configuration.
package quintet

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Wanted is what a manager consists of.
type Wanted struct {
	// Configuration is that of the core controllers; nil without them.
	Configuration *config.Configuration
	// Scheduler, Jobs, Topology and Provisioning tell which other parts are set up.
	Scheduler, Jobs, Topology, Provisioning bool
	// Frameworks are the enabled integrations.
	Frameworks sets.Set[string]
	// WithoutWebhook is an integration whose reconciler is set up, perhaps without its webhook.
	WithoutWebhook string
	// JobOptions are those of the last reconciler or webhook of jobs.
	JobOptions JobOptions
	// Transformations and QuotaCheckStrategy are handed to parts of the manager beside its configuration.
	Transformations    []config.ResourceTransformation
	QuotaCheckStrategy *config.QuotaCheckStrategy
	// FailureRecovery is how long failure recovery waits for pods; nil without it.
	FailureRecovery *time.Duration
	// MultiKueue is the configuration of the controllers that run Workloads on other clusters; nil without them.
	MultiKueue *config.MultiKueue
	// MetricsOfClusterQueues is whether resources of ClusterQueues are exposed.
	MetricsOfClusterQueues bool
	// withoutPodWebhook is whether pods are left as they are created. The first webhook of a kind counts.
	withoutPodWebhook bool
}

// JobOptions are settings that the job framework gets as options in Go.
type JobOptions struct {
	ManageJobsWithoutQueueName bool
	Namespaces                 *metav1.LabelSelector
	WaitForPodsReady           bool
	LabelKeysToCopy            []string
	AnnotationsToCopy          []string
	AfterDeactivated           *time.Duration
	ExternalFrameworks         []string
}

var (
	mutex  sync.Mutex
	wanted Wanted
)

// Take returns what was recorded since the last call.
func Take() Wanted {
	mutex.Lock()
	defer mutex.Unlock()
	taken := wanted
	wanted = Wanted{}
	if taken.withoutPodWebhook {
		taken.Frameworks.Delete("pod")
	}
	return taken
}

func record(change func(*Wanted)) {
	mutex.Lock()
	defer mutex.Unlock()
	change(&wanted)
}

// WantCore records that the controllers of Kueue's own kinds are set up.
func WantCore(configuration *config.Configuration) {
	record(func(w *Wanted) { w.Configuration = configuration.DeepCopy() })
}

// WantScheduler records that the scheduler is started.
func WantScheduler() { record(func(w *Wanted) { w.Scheduler = true }) }

// WantTopology records that the controllers of topologies are set up.
func WantTopology() { record(func(w *Wanted) { w.Topology = true }) }

// WantFailureRecovery records that failure recovery is set up, and how long it waits for pods.
func WantFailureRecovery(grace time.Duration) { record(func(w *Wanted) { w.FailureRecovery = &grace }) }

// WantProvisioning records that the check of ProvisioningRequests is set up.
func WantProvisioning() { record(func(w *Wanted) { w.Provisioning = true }) }

// WantJobs records that a reconciler of jobs is set up.
func WantJobs() { record(func(w *Wanted) { w.Jobs = true }) }

// WantFramework records an enabled integration.
func WantFramework(name string) {
	record(func(w *Wanted) {
		if w.Frameworks == nil {
			w.Frameworks = sets.New[string]()
		}
		w.Frameworks.Insert(name)
	})
}

// WantNoWebhook records that nothing is done to new objects of a type.
func WantNoWebhook(object any) {
	if _, isPod := object.(*corev1.Pod); isPod {
		record(func(w *Wanted) { w.withoutPodWebhook = w.withoutPodWebhook || !w.Frameworks.Has("pod") })
	}
}

// WantKind records an enabled integration by the kind of its jobs.
func WantKind(kind schema.GroupVersionKind) {
	WantFramework(kind.Group + "/" + strings.ToLower(kind.Kind))
}

// WantMultiKueue records that Workloads can run on other clusters.
func WantMultiKueue(interval, workerLostTimeout time.Duration, origin, dispatcher string) {
	record(func(w *Wanted) {
		w.MultiKueue = &config.MultiKueue{
			GCInterval: &metav1.Duration{Duration: interval}, WorkerLostTimeout: &metav1.Duration{Duration: workerLostTimeout},
			Origin: &origin, DispatcherName: &dispatcher,
		}
	})
}

// WantDispatcher records how Workloads are nominated for some clusters after others.
func WantDispatcher(settings *config.IncrementalDispatcherConfig) {
	record(func(w *Wanted) {
		if w.MultiKueue != nil {
			w.MultiKueue.IncrementalDispatcherConfig = settings.DeepCopy()
		}
	})
}

// WantReconciler records an integration whose reconciler is set up. It counts if no integration is enabled otherwise.
func WantReconciler(name string) { record(func(w *Wanted) { w.WithoutWebhook = name }) }

// WantTransformations records transformations of resources.
func WantTransformations(transformations []config.ResourceTransformation) {
	record(func(w *Wanted) { w.Transformations = transformations })
}

// WantMetricsOfClusterQueues records whether resources of ClusterQueues are exposed.
func WantMetricsOfClusterQueues(exposed bool) {
	record(func(w *Wanted) { w.MetricsOfClusterQueues = w.MetricsOfClusterQueues || exposed })
}

// WantQuotaCheckStrategy records what happens to resources that no ClusterQueue declares.
func WantQuotaCheckStrategy(strategy config.QuotaCheckStrategy) {
	record(func(w *Wanted) { w.QuotaCheckStrategy = &strategy })
}

// WantJobOptions records the options of the job framework.
func WantJobOptions(
	manageAll bool, namespaces labels.Selector, waitForPodsReady bool, labelKeys, annotations sets.Set[string],
	afterDeactivated *time.Duration, frameworks, externalFrameworks sets.Set[string],
) {
	options := JobOptions{
		ManageJobsWithoutQueueName: manageAll, WaitForPodsReady: waitForPodsReady, AfterDeactivated: afterDeactivated,
		LabelKeysToCopy: sets.List(labelKeys), AnnotationsToCopy: sets.List(annotations),
		ExternalFrameworks: sets.List(externalFrameworks),
	}
	if namespaces != nil {
		if selector, err := metav1.ParseToLabelSelector(namespaces.String()); err == nil {
			options.Namespaces = selector
		}
	}
	for name := range frameworks {
		WantFramework(name)
	}
	record(func(w *Wanted) { w.JobOptions = options })
}
