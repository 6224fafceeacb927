// Command hostpods runs the webhook servers of the end-to-end suite as processes of this machine. Simulated nodes say
// that their pods run; this makes it true for the few that the API server calls. The addresses of pods have to lead to
// this machine, and accountDirectory has to be writable: both are so in a namespace that is made for it.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// accountDirectory is where containers find the credentials of their service account.
const accountDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// servers are the first arguments of containers that are run.
var servers = map[string]bool{"webhook": true, "crd-conversion-webhook": true}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the cluster")
	agnhost := flag.String("agnhost", "", "the program that the containers' image has")
	directory := flag.String("dir", "", "where to write the Secrets that pods mount")
	flag.Parse()
	if err := run(*kubeconfig, *agnhost, *directory); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(kubeconfig, agnhost, directory string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Handlers are called one after the other, so that a pod's process has ended before the next one takes its port.
	host := &host{ctx: ctx, config: config, client: client, agnhost: agnhost, directory: directory, running: map[types.UID]*exec.Cmd{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { host.follow(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { host.follow(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, isUnknown := object.(cache.DeletedFinalStateUnknown); isUnknown {
				object = last.Obj
			}
			host.end(object.(*corev1.Pod).UID)
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	for uid := range host.running {
		host.end(uid)
	}
	return nil
}

type host struct {
	ctx                context.Context
	config             *rest.Config
	client             kubernetes.Interface
	agnhost, directory string
	running            map[types.UID]*exec.Cmd
}

func (h *host) follow(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		h.end(pod.UID)
		return
	}
	if h.running[pod.UID] != nil || pod.Status.PodIP == "" {
		return
	}
	for _, container := range pod.Spec.Containers {
		if len(container.Args) == 0 || !servers[container.Args[0]] || !strings.Contains(container.Image, "agnhost") {
			continue
		}
		if err := h.start(pod, container); err != nil {
			fmt.Fprintf(os.Stderr, "cannot run %s/%s: %v\n", pod.Namespace, pod.Name, err)
		}
	}
}

func (h *host) start(pod *corev1.Pod, container corev1.Container) error {
	arguments := append([]string{}, container.Args...)
	for _, mount := range container.VolumeMounts {
		directory, err := h.mount(pod, mount.Name)
		if err != nil {
			return err
		}
		if directory == "" {
			continue
		}
		for index := range arguments {
			arguments[index] = strings.ReplaceAll(arguments[index], mount.MountPath, directory)
		}
	}
	environment, err := h.account(pod)
	if err != nil {
		return err
	}
	command := exec.Command(h.agnhost, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		return err
	}
	fmt.Printf("runs %s/%s: %s\n", pod.Namespace, pod.Name, strings.Join(arguments, " "))
	h.running[pod.UID] = command
	return nil
}

// account writes the credentials of the pod's service account, and returns where the API server is.
func (h *host) account(pod *corev1.Pod) ([]string, error) {
	accounts := h.client.CoreV1().ServiceAccounts(pod.Namespace)
	token, err := accounts.CreateToken(h.ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(h.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(accountDirectory, 0o700); err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": config.CAData} {
		if err := os.WriteFile(filepath.Join(accountDirectory, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	return []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}, nil
}

// mount writes the Secret of a volume to a directory; other volumes have none.
func (h *host) mount(pod *corev1.Pod, volume string) (string, error) {
	for _, one := range pod.Spec.Volumes {
		if one.Name != volume || one.Secret == nil {
			continue
		}
		secret, err := h.client.CoreV1().Secrets(pod.Namespace).Get(h.ctx, one.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		directory := filepath.Join(h.directory, string(pod.UID), volume)
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return "", err
		}
		for name, data := range secret.Data {
			if err := os.WriteFile(filepath.Join(directory, name), data, 0o600); err != nil {
				return "", err
			}
		}
		return directory, nil
	}
	return "", nil
}

func (h *host) end(uid types.UID) {
	command := h.running[uid]
	if command == nil {
		return
	}
	delete(h.running, uid)
	_ = command.Process.Kill()
	_ = command.Wait()
}
