// Command testcluster runs a real Kubernetes control plane in one process, for tests: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler. There are no nodes in it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

const usage = `Runs a real Kubernetes control plane (etcd, API server, controllers, scheduler) for tests.

It listens on free ports of this machine's loopback, writes a kubeconfig with all permissions, says when it
is ready, and goes on until it gets SIGINT or SIGTERM. Then it removes the data directory and the kubeconfig.

`

// starting is far more than a loaded machine needs.
const starting = 2 * time.Minute

func main() {
	dataDir := flag.String("data-dir", "", "a directory that is empty or does not exist; removed at the end")
	kubeconfig := flag.String("kubeconfig", "", "where to write the kubeconfig; removed at the end")
	logFile := flag.String("log", os.DevNull, "where the components write their logs")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*dataDir, *kubeconfig, *logFile); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(dataDir, kubeconfig, logFile string) (err error) {
	begin := time.Now()
	if dataDir == "" || kubeconfig == "" || flag.NArg() > 0 {
		return errors.New("give --data-dir and --kubeconfig, and nothing else; see --help")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := logTo(logFile); err != nil {
		return err
	}
	if err := makeEmpty(dataDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dataDir)) }()

	cluster, err := prepare(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.stop()) }()
	starting, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	if err := cluster.start(starting, logFile); err != nil {
		if ctx.Err() != nil { // asked to stop before it was ready
			return nil
		}
		return fmt.Errorf("the cluster did not start (--log FILE tells more): %w", err)
	}
	if err := writeAtOnce(kubeconfig, cluster.adminKubeconfig); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(kubeconfig)) }()
	fmt.Printf("Kubernetes %s is ready at %s after %.1f s\n", version.Get().GitVersion, cluster.address, time.Since(begin).Seconds())

	select {
	case <-ctx.Done():
		return nil
	case err := <-cluster.ended:
		return err
	}
}

// logTo sends what the components log to a file: this program's own output is for its user.
func logTo(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the log: %w", err)
	}
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"}); err != nil {
		return err
	}
	klog.SetOutput(file)
	return nil
}

func makeEmpty(directory string) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w", err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("cannot read the data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("the data directory %s is not empty; it is removed at the end, so choose another", directory)
	}
	return nil
}

// writeAtOnce makes the file appear whole, so that whoever waits for it can read it.
func writeAtOnce(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*") // mode 0600
	if err != nil {
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		os.Remove(temporary.Name())
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return nil
}
