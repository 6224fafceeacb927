package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lifetime outlasts any test run.
const lifetime = 7 * 24 * time.Hour

// authority signs certificates; its own and those it issues are files of one directory.
type authority struct {
	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	files       pair
}

// pair names the files of a certificate and its key.
type pair struct{ certificate, key string }

func newAuthority(directory, name string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	made := &authority{directory: directory}
	var err error
	made.certificate, made.key, made.files, err = made.make(name, template)
	return made, err
}

// client issues a certificate for a user and the groups it is in.
func (a *authority) client(name string, groups ...string) (pair, error) {
	_, _, files, err := a.make(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return files, err
}

// server issues a certificate for the names and addresses of a server.
func (a *authority) server(name string, names []string, addresses ...net.IP) (pair, error) {
	_, _, files, err := a.make(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    names,
		IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return files, err
}

// make signs the template, with its own key if the authority has no certificate yet, and writes both files.
func (a *authority) make(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, pair, error) {
	fail := func(err error) (*x509.Certificate, *ecdsa.PrivateKey, pair, error) {
		return nil, nil, pair{}, fmt.Errorf("cannot make the certificate of %s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return fail(err)
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = template.NotBefore.Add(lifetime)
	parent, signer := template, key
	if a.certificate != nil {
		parent, signer = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return fail(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	files := pair{filepath.Join(a.directory, name+".crt"), filepath.Join(a.directory, name+".key")}
	if err := writePEM(files.certificate, "CERTIFICATE", der); err != nil {
		return fail(err)
	}
	return certificate, key, files, writeKey(files.key, key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig holds everything a client needs, so that it outlives the files it was made from.
func (a *authority) kubeconfig(address string, user pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["testcluster"] = &clientcmdapi.Cluster{Server: address, CertificateAuthority: a.files.certificate}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: user.certificate, ClientKey: user.key}
	config.Contexts["testcluster"] = &clientcmdapi.Context{Cluster: "testcluster", AuthInfo: "user"}
	config.CurrentContext = "testcluster"
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}
