// The setup of KubeRay's controller suite for a manager that runs in another process: Quintet's operator.
package ray

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/pkg/features"
)

// What the specs use of their suite.
var (
	k8sClient              client.Client
	fakeRayDashboardClient *utils.FakeRayDashboardClient
	fakeRayHttpProxyClient *utils.FakeRayHttpProxyClient
)

var operator *process

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controller Suite")
}

var _ = BeforeSuite(func() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG_UNDER_TEST"))
	Expect(err).NotTo(HaveOccurred())
	Expect(rayv1.AddToScheme(scheme.Scheme)).To(Succeed())
	k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	// A spec reads what upstream's unit tests leave behind; they are not run here.
	testRayCluster = &rayv1.RayCluster{}
	fakeRayDashboardClient = prepareFakeRayDashboardClient()
	fakeRayHttpProxyClient = &utils.FakeRayHttpProxyClient{}
	address, err := serveBridge(config)
	Expect(err).NotTo(HaveOccurred())

	operator, err = newProcess(address)
	Expect(err).NotTo(HaveOccurred())
	Expect(operator.follow()).To(Succeed())
	// A process reads its gates when it starts: another gate is another process.
	features.GateChanged = func() {
		if err := operator.follow(); err != nil {
			Fail(err.Error())
		}
	}
	go operator.watchEnvironment()
})

var _ = AfterSuite(func() {
	if operator != nil {
		operator.stop()
	}
})
