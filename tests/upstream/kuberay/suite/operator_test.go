package ray

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/pkg/features"
	"k8s.io/component-base/featuregate"
)

// The gates that both programs know.
var gates = []featuregate.Feature{
	features.RayClusterStatusConditions, features.RayJobDeletionPolicy, features.RayMultiHostIndexing,
	features.RayServiceIncrementalUpgrade, features.RayCronJob,
}

// Variables that specs set for the manager in their own process.
var variables = []string{utils.DELETE_RAYJOB_CR_AFTER_JOB_FINISHES, utils.ENABLE_RANDOM_POD_DELETE}

// The configuration of the manager in upstream's suite; dashboards are reached through the API server, and so by
// the bridge.
const configuration = `apiVersion: config.ray.io/v1alpha1
kind: Configuration
useKubernetesProxy: true
headSidecarContainers:
- name: fluentbit
  image: fluent/fluent-bit:1.9.6
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: bridge, cluster: {server: "http://%s"}}]
users: [{name: bridge, user: {}}]
contexts: [{name: bridge, context: {cluster: bridge, user: bridge}}]
current-context: bridge
`

// process is Quintet's operator, started anew when a spec changes a gate or a variable.
type process struct {
	mutex     sync.Mutex
	directory string
	log       *os.File
	command   *exec.Cmd
	state     string
}

func newProcess(bridge string) (*process, error) {
	directory, err := os.MkdirTemp("", "quintet-upstream-")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"config.yaml": configuration, "kubeconfig": fmt.Sprintf(kubeconfig, bridge),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	path := os.Getenv("QUINTET_OPERATOR_LOG")
	if path == "" {
		path = filepath.Join(directory, "log")
	}
	log, err := os.Create(path)
	return &process{directory: directory, log: log}, err
}

func wanted() (gateFlag string, environment []string) {
	for _, gate := range gates {
		gateFlag += fmt.Sprintf("%s=%t,", gate, features.Enabled(gate))
	}
	for _, name := range variables {
		if value, isSet := os.LookupEnv(name); isSet {
			environment = append(environment, name+"="+value)
		}
	}
	return gateFlag[:len(gateFlag)-1], environment
}

// follow makes the operator one with the gates and variables of this process.
func (p *process) follow() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	gateFlag, environment := wanted()
	state := fmt.Sprint(gateFlag, environment)
	if p.command != nil && state == p.state {
		return nil
	}
	p.end()
	health, err := freeAddress()
	if err != nil {
		return err
	}
	p.state = state
	p.command, err = launch(p.log, health, os.Getenv("QUINTET"), "operator", "--components", "ray", "--namespace", "default",
		"--config", filepath.Join(p.directory, "config.yaml"),
		"--kubeconfig", filepath.Join(p.directory, "kubeconfig"),
		"--feature-gates", gateFlag, "--leader-elect=false", "--metrics-bind-address", "0",
		"--health-probe-bind-address", health, "--webhook-host", "127.0.0.1", "--webhook-port", "0",
		"--log-format", "text", "--log-level", "info")
	return err
}

// launch starts a program and waits until it is ready.
func launch(log *os.File, health, program string, arguments ...string) (*exec.Cmd, error) {
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV=10")
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return command, nil
		}
	}
	terminate(command)
	return nil, fmt.Errorf("%s did not become ready; its log is %s", program, log.Name())
}

func terminate(command *exec.Cmd) {
	_ = command.Process.Signal(syscall.SIGTERM)
	_ = command.Wait()
}

// watchEnvironment follows variables, which specs set without saying so.
func (p *process) watchEnvironment() {
	for range time.Tick(100 * time.Millisecond) {
		_ = p.follow()
	}
}

func (p *process) stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.end()
}

func (p *process) end() {
	if p.command != nil {
		terminate(p.command)
		p.command = nil
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
