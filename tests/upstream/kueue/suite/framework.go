// Package framework runs the integration suites of Kueue against Quintet's operator, in the place of a manager in the
// process of the suite.
package framework

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	kfmpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	sparkv1beta2 "github.com/kubeflow/spark-operator/v2/api/v1beta2"
	kftrainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kftraining "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	awv1beta2 "github.com/project-codeflare/appwrapper/api/v1beta2"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"go.uber.org/zap/zaptest/observer"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	leaderworkersetv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/quintet"
	"sigs.k8s.io/kueue/test/util"
)

// ManagerSetup adds controllers and webhooks to a manager.
type ManagerSetup func(context.Context, manager.Manager)

// ManagerOption changes the options of a manager. Clients and caches of the suite's own process are of no use to another.
type ManagerOption func(*manager.Options)

// WithNewClient is for a manager in this process.
func WithNewClient(client.NewClientFunc) ManagerOption { return func(*manager.Options) {} }

// WithNewCache is for a manager in this process.
func WithNewCache(cache.NewCacheFunc) ManagerOption { return func(*manager.Options) {} }

// Labels that suites give their specs.
var (
	SlowSpec      = ginkgo.Label("slow")
	RedundantSpec = ginkgo.Label("Redundant")
)

// Framework is what suites drive. The settings of API servers do not apply to one that runs already.
type Framework struct {
	DepCRDPaths               []string
	WebhookPath               string
	APIServerFeatureGates     []string
	APIServerRuntimeConfig    []string
	APIServerAdmissionPlugins []string
	ObservedLogs              *observer.ObservedLogs

	environment *envtest.Environment
	scheme      *runtime.Scheme
	kubeconfig  string
	cancel      context.CancelFunc
	operator    *operator
}

var (
	// inUse are the kubeconfigs of frameworks that were not torn down.
	inUse []string
	// running have an operator, in the order in which they were started.
	running []*Framework
	// mutex guards the two, and lets managers be set up one after the other.
	mutex sync.Mutex
)

// freeKubeconfig is the first of $KUBECONFIGS, a list, that is not in use.
func freeKubeconfig() string {
	mutex.Lock()
	defer mutex.Unlock()
	for _, path := range filepath.SplitList(os.Getenv("KUBECONFIGS")) {
		if !slices.Contains(inUse, path) {
			inUse = append(inUse, path)
			return path
		}
	}
	ginkgo.Fail("the suite wants more API servers than there are in KUBECONFIGS")
	return ""
}

var schemes = []func(*runtime.Scheme) error{
	clientgoscheme.AddToScheme, config.AddToScheme, kueue.AddToScheme, kueuev1beta1.AddToScheme, awv1beta2.AddToScheme,
	kfmpi.AddToScheme, rayv1.AddToScheme, jobsetapi.AddToScheme, kftraining.AddToScheme, autoscaling.AddToScheme,
	kftrainer.AddToScheme, resourcev1.AddToScheme, inventoryv1alpha1.AddToScheme, leaderworkersetv1.AddToScheme,
	sparkv1beta2.AddToScheme,
}

// Init connects to an API server of $KUBECONFIGS, and installs definitions and webhook configurations there.
func (f *Framework) Init() *rest.Config {
	ginkgo.GinkgoHelper()
	f.ObservedLogs = util.SetupLoggerGetObservedLogs()
	f.scheme = runtime.NewScheme()
	for _, add := range schemes {
		gomega.Expect(add(f.scheme)).To(gomega.Succeed())
	}
	f.kubeconfig = freeKubeconfig()
	cluster, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	// As those of API servers for tests: suites make many requests to clean up.
	cluster.QPS, cluster.Burst = 1000, 2000
	exists := true
	f.environment = &envtest.Environment{
		UseExistingCluster:    &exists,
		Config:                cluster,
		Scheme:                f.scheme,
		ErrorIfCRDPathMissing: true,
		CRDDirectoryPaths: append(
			f.DepCRDPaths, filepath.Join(util.ProjectBaseDir, "config", "components", "crd", "_output")),
	}
	if f.WebhookPath != "" {
		f.environment.WebhookInstallOptions.Paths = []string{f.WebhookPath}
	}
	started, err := f.environment.Start()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return started
}

// SetupClient returns a client for specs.
func (f *Framework) SetupClient(cfg *rest.Config) (context.Context, client.WithWatch) {
	ginkgo.GinkgoHelper()
	k8sClient, err := client.NewWithWatch(cfg, client.Options{Scheme: f.scheme})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	return ctx, k8sClient
}

// StartManager sets a manager up that is never started, and starts Quintet's operator with what the manager has.
func (f *Framework) StartManager(ctx context.Context, cfg *rest.Config, setup ManagerSetup, opts ...ManagerOption) {
	ginkgo.GinkgoHelper()
	options := manager.Options{
		Scheme:        f.scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{}),
		Controller:    crconfig.Controller{SkipNameValidation: &[]bool{true}[0]},
	}
	for _, change := range opts {
		change(&options)
	}
	mgr, err := ctrl.NewManager(cfg, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(createNamespace(ctx, cfg)).To(gomega.Succeed())
	f.StopManager(ctx)
	mutex.Lock()
	defer mutex.Unlock()
	setupCtx, endSetup := context.WithCancel(ctx)
	defer endSetup()
	quintet.Take()
	setup(setupCtx, mgr)

	f.operator, err = newOperator(quintet.Take(), &f.environment.WebhookInstallOptions, f.scheme, f.kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(f.operator.follow()).To(gomega.Succeed())
	running = append(running, f)
	features.GateChanged = followGates
}

// followGates starts operators again: a process reads its gates when it starts. Specs set one gate after another: an operator that
// refuses what it is given in between is away until the next.
func followGates() {
	mutex.Lock()
	defer mutex.Unlock()
	for _, f := range running {
		if err := f.operator.follow(); !errors.Is(err, errEnded) {
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
}

// StopManager stops the operator.
func (f *Framework) StopManager(context.Context) {
	mutex.Lock()
	defer mutex.Unlock()
	if f.operator != nil {
		f.operator.stop()
		f.operator = nil
		running = slices.DeleteFunc(running, func(other *Framework) bool { return other == f })
	}
}

// Teardown stops what runs. The API server is another's.
func (f *Framework) Teardown() {
	ginkgo.GinkgoHelper()
	f.StopManager(context.Background())
	if f.cancel != nil {
		f.cancel()
	}
	gomega.Expect(f.environment.Stop()).To(gomega.Succeed())
	mutex.Lock()
	defer mutex.Unlock()
	inUse = slices.DeleteFunc(inUse, func(path string) bool { return path == f.kubeconfig })
}
