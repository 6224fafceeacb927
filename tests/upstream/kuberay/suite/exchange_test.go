package ray

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	utiltypes "github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/types"
)

const (
	exchanged = "exchange"
	// Long enough for the periodic reconciles of both operators, every 10 s.
	quietPeriod = 12 * time.Second
	patience    = 2 * time.Minute
)

// exchange is a namespace whose objects change hands between KubeRay's manager and Quintet's operator.
type exchange struct {
	*WithT
	ctx       context.Context
	directory string
	log       *os.File
	command   *exec.Cmd
	// The clusters whose applications run; on others they are being deployed.
	serving sync.Map
}

// TestExchange hands running clusters, jobs and services from KubeRay's manager to Quintet and back, each time with an
// upgrade and a first cluster in progress, which the new operator completes.
func TestExchange(t *testing.T) {
	if os.Getenv("KUBERAY_MANAGER") == "" {
		t.Skip("tests/upstream/kuberay/exchange runs this test")
	}
	x := newExchange(t)
	defer x.end()

	x.runKubeRay()
	x.createAll()
	x.createService("first")
	x.beginUpgrade("upgrading", "2.53.1")
	x.handOver("Quintet", x.runQuintet, 2)
	x.complete("first", "upgrading")

	x.createService("second")
	x.beginUpgrade("upgrading", "2.53.2")
	x.handOver("KubeRay", x.runKubeRay, 3)
	x.complete("second", "upgrading")
}

func newExchange(t *testing.T) *exchange {
	x := &exchange{WithT: NewWithT(t), ctx: t.Context(), directory: t.TempDir()}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG_UNDER_TEST"))
	x.Expect(err).NotTo(HaveOccurred())
	x.Expect(rayv1.AddToScheme(scheme.Scheme)).To(Succeed())
	k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	x.Expect(err).NotTo(HaveOccurred())
	fakeRayDashboardClient = prepareFakeRayDashboardClient()
	fakeRayHttpProxyClient = &utils.FakeRayHttpProxyClient{IsHealthy: true}
	applicationsOn = x.applicationsOn
	bridge, err := serveBridge(config)
	x.Expect(err).NotTo(HaveOccurred())
	x.write("kubeconfig", fmt.Sprintf(kubeconfig, bridge))
	path := os.Getenv("QUINTET_OPERATOR_LOG")
	if path == "" {
		path = filepath.Join(x.directory, "log")
	}
	x.log, err = os.Create(path)
	x.Expect(err).NotTo(HaveOccurred())
	return x
}

func (x *exchange) write(name, text string) string {
	path := filepath.Join(x.directory, name)
	x.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

// runKubeRay starts upstream's manager.
func (x *exchange) runKubeRay() {
	health, err := freeAddress()
	x.Expect(err).NotTo(HaveOccurred())
	config := x.write("kuberay.yaml", configuration+
		fmt.Sprintf("metricsAddr: \"0\"\nprobeAddr: %s\nenableLeaderElection: false\n", health))
	x.command, err = launch(x.log, health, os.Getenv("KUBERAY_MANAGER"), "--config", config,
		"--kubeconfig", filepath.Join(x.directory, "kubeconfig"))
	x.Expect(err).NotTo(HaveOccurred())
}

// runQuintet starts our operator.
func (x *exchange) runQuintet() {
	health, err := freeAddress()
	x.Expect(err).NotTo(HaveOccurred())
	x.command, err = launch(x.log, health, os.Getenv("QUINTET"), "operator", "--components", "ray", "--namespace", "default",
		"--config", x.write("quintet.yaml", configuration),
		"--kubeconfig", filepath.Join(x.directory, "kubeconfig"), "--leader-elect=false",
		"--metrics-bind-address", "0", "--health-probe-bind-address", health,
		"--webhook-host", "127.0.0.1", "--webhook-port", "0", "--log-format", "text", "--log-level", "info")
	x.Expect(err).NotTo(HaveOccurred())
}

func (x *exchange) end() {
	if x.command != nil {
		terminate(x.command)
		x.command = nil
	}
}

// createAll creates what changes hands, and waits until it runs.
func (x *exchange) createAll() {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exchanged}}
	x.Expect(k8sClient.Create(x.ctx, namespace)).To(Succeed())
	plain, autoscaled := rayClusterTemplate("plain", exchanged), rayClusterTemplate("autoscaled", exchanged)
	autoscaled.Spec.EnableInTreeAutoscaling = ptr.To(true)
	autoscaled.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](1)
	submitted, posted := rayJobTemplate("submitted", exchanged), rayJobTemplate("posted", exchanged)
	posted.Spec.SubmissionMode = rayv1.HTTPMode
	for _, object := range []client.Object{plain, autoscaled, submitted, posted} {
		x.Expect(k8sClient.Create(x.ctx, object)).To(Succeed(), object.GetName())
	}
	for _, service := range []string{"settled", "upgrading"} {
		x.createService(service)
	}
	x.complete("settled", "upgrading")
	x.expectRunningJobs()
}

// createService creates a RayService and waits for its first cluster, which remains pending.
func (x *exchange) createService(name string) {
	service := rayServiceTemplate(name, exchanged, "app")
	service.Spec.RayClusterDeletionDelaySeconds = ptr.To[int32](5)
	x.Expect(k8sClient.Create(x.ctx, service)).To(Succeed(), name)
	x.Eventually(x.clustersOf, patience, time.Second).WithArguments(name).Should(HaveLen(1), name)
}

// beginUpgrade changes the cluster of a service and waits for the new one, which remains pending.
func (x *exchange) beginUpgrade(name, rayVersion string) {
	x.update(name, &rayv1.RayService{}, func(object client.Object) {
		object.(*rayv1.RayService).Spec.RayClusterSpec.RayVersion = rayVersion
	})
	x.Eventually(x.clustersOf, patience, time.Second).WithArguments(name).Should(HaveLen(2), name)
}

// handOver replaces the operator while a first cluster and an upgrade are pending. Between the two, the autoscaler asks
// for another worker.
func (x *exchange) handOver(name string, run func(), workers int32) {
	x.waitUntilQuiet()
	before, clusters, versions := x.identities(), x.clusters(), x.versions("plain")
	x.end()
	x.autoscale(workers)
	run()

	x.Eventually(x.workers, patience, time.Second).WithArguments("autoscaled").Should(HaveLen(int(workers)))
	x.Eventually(x.unmarked, patience, time.Second).WithArguments(name == "KubeRay").
		Should(BeEmpty(), "%s adopts the pending clusters", name)
	x.waitUntilQuiet()
	after := x.identities()
	for object, uid := range before {
		x.Expect(after).To(HaveKeyWithValue(object, uid), "%s keeps everything", name)
	}
	x.Expect(x.clusters()).To(HaveLen(len(clusters)), "%s creates no cluster", name)
	x.Expect(x.versions("plain")).To(Equal(versions), "%s writes nothing of a cluster that is as it should be", name)
	x.expectRunningJobs()
}

// complete lets the applications on the pending clusters of services run, and waits until each of these is the only
// cluster of its service.
func (x *exchange) complete(services ...string) {
	for _, service := range services {
		clusters, old := x.clustersOf(service), x.active(service)
		for _, cluster := range clusters {
			x.serving.Store(cluster, true)
		}
		x.Eventually(func(g Gomega) {
			remaining := x.clustersOf(service)
			g.Expect(remaining).To(HaveLen(1))
			g.Expect(remaining[0]).To(And(Not(Equal(old)), BeElementOf(clusters)), "the pending cluster becomes the active one")
			g.Expect(x.active(service)).To(Equal(remaining[0]))
		}, patience, time.Second).Should(Succeed(), service)
	}
}

func (x *exchange) applicationsOn(_ context.Context, headService string) (map[string]*utiltypes.ServeApplicationStatus, error) {
	state := rayv1.ApplicationStatusEnum.DEPLOYING
	if _, found := x.serving.Load(strings.TrimSuffix(headService, "-head-svc")); found {
		state = rayv1.ApplicationStatusEnum.RUNNING
	}
	status := generateServeStatus(rayv1.DeploymentStatusEnum.HEALTHY, state)
	return map[string]*utiltypes.ServeApplicationStatus{"app": &status}, nil
}

// autoscale does what Ray's autoscaler does: it writes replicas.
func (x *exchange) autoscale(replicas int32) {
	x.update("autoscaled", &rayv1.RayCluster{}, func(object client.Object) {
		object.(*rayv1.RayCluster).Spec.WorkerGroupSpecs[0].Replicas = &replicas
	})
}

func (x *exchange) update(name string, object client.Object, change func(client.Object)) {
	x.Eventually(func() error {
		if err := k8sClient.Get(x.ctx, client.ObjectKey{Namespace: exchanged, Name: name}, object); err != nil {
			return err
		}
		change(object)
		return k8sClient.Update(x.ctx, object)
	}, patience, time.Second).Should(Succeed())
}

// waitUntilQuiet waits until no pod, cluster, Service or Job comes or goes for a while.
func (x *exchange) waitUntilQuiet() {
	last, since := x.identities(), time.Now()
	for deadline := since.Add(patience); time.Since(since) < quietPeriod; time.Sleep(time.Second) {
		if now := x.identities(); fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		}
		x.Expect(time.Now()).To(BeTemporally("<", deadline), "objects come and go")
	}
}

// each calls a function with the clusters, pods, Services and Jobs.
func (x *exchange) each(visit func(kind string, object client.Object), options ...client.ListOption) {
	for kind, list := range map[string]client.ObjectList{
		"RayCluster": &rayv1.RayClusterList{}, "Pod": &corev1.PodList{}, "Service": &corev1.ServiceList{}, "Job": &batchv1.JobList{},
	} {
		x.Expect(k8sClient.List(x.ctx, list, append(options, client.InNamespace(exchanged))...)).To(Succeed())
		x.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			visit(kind, item.(client.Object))
			return nil
		})).To(Succeed())
	}
}

func (x *exchange) identities() map[string]string {
	found := map[string]string{}
	x.each(func(kind string, object client.Object) { found[kind+" "+object.GetName()] = string(object.GetUID()) })
	return found
}

// versions are those of a cluster and of what it has.
func (x *exchange) versions(cluster string) map[string]string {
	var object rayv1.RayCluster
	x.Expect(k8sClient.Get(x.ctx, client.ObjectKey{Namespace: exchanged, Name: cluster}, &object)).To(Succeed())
	found := map[string]string{"RayCluster": object.ResourceVersion}
	x.each(func(kind string, object client.Object) {
		found[kind+" "+object.GetName()] = object.GetResourceVersion()
	},
		client.MatchingLabels{utils.RayClusterLabelKey: cluster})
	return found
}

func (x *exchange) clusters() []rayv1.RayCluster {
	var list rayv1.RayClusterList
	x.Expect(k8sClient.List(x.ctx, &list, client.InNamespace(exchanged))).To(Succeed())
	return list.Items
}

func (x *exchange) clustersOf(service string) []string {
	var names []string
	for _, cluster := range x.clusters() {
		if metav1.IsControlledBy(&cluster, x.service(service)) {
			names = append(names, cluster.Name)
		}
	}
	return names
}

// unmarked are the pending clusters that the other operator marked last.
func (x *exchange) unmarked(byKubeRay bool) []string {
	var list rayv1.RayServiceList
	x.Expect(k8sClient.List(x.ctx, &list, client.InNamespace(exchanged))).To(Succeed())
	pending := map[string]bool{}
	for _, service := range list.Items {
		pending[service.Status.PendingServiceStatus.RayClusterName] = true
	}
	var names []string
	for _, cluster := range x.clusters() {
		if isKubeRays := cluster.Annotations[utils.KubeRayVersion] == utils.KUBERAY_VERSION; pending[cluster.Name] && isKubeRays != byKubeRay {
			names = append(names, cluster.Name)
		}
	}
	return names
}

func (x *exchange) workers(cluster string) []string {
	var list corev1.PodList
	labels := client.MatchingLabels{utils.RayClusterLabelKey: cluster, utils.RayNodeTypeLabelKey: string(rayv1.WorkerNode)}
	x.Expect(k8sClient.List(x.ctx, &list, client.InNamespace(exchanged), labels)).To(Succeed())
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

func (x *exchange) service(name string) *rayv1.RayService {
	var object rayv1.RayService
	x.Expect(k8sClient.Get(x.ctx, client.ObjectKey{Namespace: exchanged, Name: name}, &object)).To(Succeed())
	return &object
}

func (x *exchange) active(service string) string {
	return x.service(service).Status.ActiveServiceStatus.RayClusterName
}

func (x *exchange) expectRunningJobs() {
	for _, name := range []string{"submitted", "posted"} {
		x.Eventually(func() rayv1.JobDeploymentStatus {
			var job rayv1.RayJob
			x.Expect(k8sClient.Get(x.ctx, client.ObjectKey{Namespace: exchanged, Name: name}, &job)).To(Succeed())
			return job.Status.JobDeploymentStatus
		}, patience, time.Second).Should(Equal(rayv1.JobDeploymentStatusRunning), name)
	}
}
