package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is the control plane. Its parts end in the opposite order of their start.
type cluster struct {
	directory       string
	address         string
	adminKubeconfig []byte

	listener    net.Listener
	front, main *authority
	serving     pair
	accountKey  string

	// ended has the error of a part that ended before it was asked to.
	ended chan error
	stops []func() error
}

// prepare makes certificates, credentials and the API server's listener.
func prepare(directory string) (*cluster, error) {
	c := &cluster{directory: directory, ended: make(chan error, 3)}
	var err error
	if c.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("cannot listen on loopback: %w", err)
	}
	c.address = "https://" + c.listener.Addr().String()
	if c.main, err = newAuthority(directory, "kubernetes-ca"); err != nil {
		return nil, err
	}
	if c.front, err = newAuthority(directory, "front-proxy-ca"); err != nil {
		return nil, err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if c.serving, err = c.main.server("kube-apiserver", names, net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)); err != nil {
		return nil, err
	}
	admin, err := c.main.client("kubernetes-admin", "system:masters")
	if err != nil {
		return nil, err
	}
	if c.adminKubeconfig, err = c.main.kubeconfig(c.address, admin); err != nil {
		return nil, err
	}
	c.accountKey = filepath.Join(directory, "service-accounts.key")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return c, writeKey(c.accountKey, key)
}

// start brings the parts up one after the other and returns when the cluster does its work.
func (c *cluster) start(ctx context.Context, logFile string) error {
	etcd, err := c.startEtcd(ctx, logFile)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	parts, err := c.configure(etcd)
	if err != nil {
		return err
	}
	c.run("kube-apiserver", parts.apiServer)
	config, err := clientcmd.RESTConfigFromKubeConfig(c.adminKubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	err = c.until(ctx, "the API server is ready", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	c.run("kube-controller-manager", parts.controllerManager)
	schedulerReady := make(chan error, 1)
	c.run("kube-scheduler", func(ctx context.Context) error { return parts.scheduler(ctx, schedulerReady) })
	// The first things clients need of the controllers.
	err = c.until(ctx, "the controllers work", func(ctx context.Context) error {
		_, noAccount := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		_, noRoot := client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(noAccount, noRoot)
	})
	if err != nil {
		return err
	}
	select {
	case err := <-schedulerReady:
		return err
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		return errors.New("the scheduler is not ready")
	}
}

// stop ends all parts, the youngest first.
func (c *cluster) stop() error {
	var problems []error
	for i := len(c.stops) - 1; i >= 0; i-- {
		problems = append(problems, c.stops[i]())
	}
	c.listener.Close()
	return errors.Join(problems...)
}

// run starts a part that goes on until its context ends.
func (c *cluster) run(name string, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := part(ctx)
		if ctx.Err() == nil {
			c.ended <- fmt.Errorf("%s ended by itself: %w", name, err)
		}
	}()
	c.stops = append(c.stops, func() error {
		cancel()
		select {
		case <-done:
			return nil
		case <-time.After(stopping):
			return fmt.Errorf("%s did not end in %s", name, stopping)
		}
	})
}

// stopping is what a part gets for its last requests.
const stopping = 20 * time.Second

// until asks again and again until there is no error, or a part has ended.
func (c *cluster) until(ctx context.Context, what string, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case ended := <-c.ended:
			return false, ended
		default:
		}
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("it never came true that %s: %w", what, last)
	}
	return err
}

// startEtcd returns the address of an etcd of its own. It never syncs to disk: the data do not outlive the process.
func (c *cluster) startEtcd(ctx context.Context, logFile string) (string, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(c.directory, "etcd")
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	config.LogOutputs = []string{logFile}
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback, loopback
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback, loopback
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	c.stops = append(c.stops, func() error {
		server.Close()
		return nil
	})
	select {
	case <-server.Server.ReadyNotify():
		return "http://" + server.Clients[0].Addr().String(), nil
	case err := <-server.Err():
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// credentials writes the kubeconfig of a part.
func (c *cluster) credentials(user string) (string, error) {
	certificate, err := c.main.client(user)
	if err != nil {
		return "", err
	}
	content, err := c.main.kubeconfig(c.address, certificate)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.directory, user+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
