package ray

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"

	"k8s.io/client-go/rest"

	utiltypes "github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/types"
)

var (
	dashboardPath  = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/services/([^/]+):dashboard/proxy(/.*)$`)
	serveProxyPath = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/[^/]+/proxy/-/healthz$`)
	jobPath        = regexp.MustCompile(`^/api/jobs/([^/]+)$`)
)

// applicationsOn says which applications the cluster behind a head Service has.
var applicationsOn = func(ctx context.Context, _ string) (map[string]*utiltypes.ServeApplicationStatus, error) {
	return fakeRayDashboardClient.GetMultiApplicationStatus(ctx)
}

// serveBridge listens for the operator's requests on loopback. Those to Ray are answered by the mocks of the specs, all
// others by the API server.
func serveBridge(config *rest.Config) (string, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return "", err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return "", err
	}
	apiServer := httputil.NewSingleHostReverseProxy(target)
	apiServer.Transport = transport
	apiServer.FlushInterval = -1
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	handler := func(writer http.ResponseWriter, request *http.Request) {
		if found := dashboardPath.FindStringSubmatch(request.URL.Path); found != nil {
			answerAsRay(writer, request, found[1], found[2])
			return
		}
		if serveProxyPath.MatchString(request.URL.Path) {
			answer(writer, "success", fakeRayHttpProxyClient.CheckProxyActorHealth(request.Context()))
			return
		}
		apiServer.ServeHTTP(writer, request)
	}
	go func() { _ = http.Serve(listener, http.HandlerFunc(handler)) }()
	return listener.Addr().String(), nil
}

// answerAsRay asks the mock of the dashboard's client what the dashboard would say.
func answerAsRay(writer http.ResponseWriter, request *http.Request, service, path string) {
	ctx := request.Context()
	job := jobPath.FindStringSubmatch(path)
	switch {
	case request.Method == http.MethodGet && job != nil:
		info, err := fakeRayDashboardClient.GetJobInfo(ctx, job[1])
		answer(writer, info, err)
	case request.Method == http.MethodPost && path == "/api/jobs/":
		answer(writer, map[string]string{"job_id": "submitted"}, nil)
	case request.Method == http.MethodPost:
		answer(writer, map[string]bool{"stopped": true}, fakeRayDashboardClient.StopJob(ctx, path))
	case request.Method == http.MethodPut:
		config, err := io.ReadAll(request.Body)
		if err == nil {
			err = fakeRayDashboardClient.UpdateDeployments(context.WithoutCancel(ctx), config)
		}
		answer(writer, map[string]string{}, err)
	default:
		applications, err := applicationsOn(ctx, service)
		answer(writer, map[string]any{"applications": applications}, err)
	}
}

func answer(writer http.ResponseWriter, body any, err error) {
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(body)
}
