package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/util/compatibility"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// parts are Kubernetes' own programs, ready to run until their context ends.
type parts struct {
	apiServer, controllerManager func(context.Context) error
	// scheduler says on the channel when it schedules.
	scheduler func(context.Context, chan<- error) error
}

// configure reads the options of all parts: they share feature gates, which can be set once in a process.
func (c *cluster) configure(etcd string) (parts, error) {
	var made parts
	var problems [3]error
	made.apiServer, problems[0] = c.apiServer(etcd)
	made.controllerManager, problems[1] = c.controllerManager()
	made.scheduler, problems[2] = c.scheduler()
	return made, errors.Join(append(problems[:], compatibility.DefaultComponentGlobalsRegistry.Set())...)
}

func (c *cluster) apiServer(etcd string) (func(context.Context) error, error) {
	proxy, err := c.front.client("front-proxy-client")
	if err != nil {
		return nil, err
	}
	options := apiserveroptions.NewServerRunOptions()
	err = parse(options.Flags(),
		"--etcd-servers="+etcd,
		"--bind-address=127.0.0.1",
		// There is no network that leads from a pod to this process: no endpoints of the service "kubernetes".
		"--endpoint-reconciler-type=none",
		// Nothing serves cluster IPs: webhooks and aggregated APIs are called at their endpoints.
		"--enable-aggregator-routing=true",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file="+c.serving.certificate,
		"--tls-private-key-file="+c.serving.key,
		"--client-ca-file="+c.main.files.certificate,
		"--requestheader-client-ca-file="+c.front.files.certificate,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+proxy.certificate,
		"--proxy-client-key-file="+proxy.key,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.accountKey,
		"--service-account-signing-key-file="+c.accountKey,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		"--profiling=false",
	)
	if err != nil {
		return nil, err
	}
	options.SecureServing.Listener = c.listener
	options.SecureServing.BindPort = c.listener.Addr().(*net.TCPAddr).Port
	options.SecureServing.ExternalAddress = net.IPv4(127, 0, 0, 1)
	return func(ctx context.Context) error {
		completed, err := options.Complete(ctx)
		if err != nil {
			return err
		}
		if problems := completed.Validate(); len(problems) > 0 {
			return errors.Join(problems...)
		}
		return apiserver.Run(ctx, completed)
	}, nil
}

func (c *cluster) controllerManager() (func(context.Context) error, error) {
	kubeconfig, err := c.credentials("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	options, err := manageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	all, off, aliases := manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases()
	err = parse(options.Flags(all, off, aliases),
		"--kubeconfig="+kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--root-ca-file="+c.main.files.certificate,
		"--cluster-signing-cert-file="+c.main.files.certificate,
		"--cluster-signing-key-file="+c.main.files.key,
		"--service-account-private-key-file="+c.accountKey,
		// The defaults are for a cluster of many users; here tests wait.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	)
	return func(ctx context.Context) error {
		config, err := options.Config(ctx, all, off, aliases)
		if err != nil {
			return err
		}
		return manager.Run(ctx, config.Complete())
	}, err
}

func (c *cluster) scheduler() (func(context.Context, chan<- error) error, error) {
	kubeconfig, err := c.credentials("system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	options := scheduleroptions.NewOptions()
	err = parse(*options.Flags,
		"--kubeconfig="+kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	)
	return func(ctx context.Context, ready chan<- error) error {
		config, program, err := scheduler.Setup(ctx, options)
		if err != nil {
			return err
		}
		go func() { ready <- program.WaitForHandlersSync(ctx) }()
		return scheduler.Run(ctx, config, program)
	}, err
}

func parse(sets cliflag.NamedFlagSets, arguments ...string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("cannot use its options: %w", err)
	}
	return nil
}
