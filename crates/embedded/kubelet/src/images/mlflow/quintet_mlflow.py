"""Namespaces as MLflow workspaces, and authorization of requests by the RBAC of the cluster.

MLflow operators start servers with --app-name=kubernetes-auth and --workspace-store-uri=kubernetes://, which are names of
plugins. The plugins are part of the images that the operators use, but not of the package index.
"""

import base64
import hashlib
import json
import os
import re
from contextvars import ContextVar
from fnmatch import fnmatch

import anyio.to_thread
import requests
from cachetools import TTLCache, cached
from mlflow.entities import Workspace
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.workspace.abstract_store import AbstractStore

GROUP = "mlflow.kubeflow.org"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
WORKSPACE_HEADER = "x-mlflow-workspace"
ARTIFACT_SECRET = "mlflow-artifact-connection"
DESCRIPTION = "mlflow.kubeflow.org/workspace-description"
# Namespaces of the cluster itself are no workspaces.
HIDDEN = ("kube-*", "openshift", "openshift-*")
# How long a namespace that is gone may still be used, in seconds.
NAMESPACE_TTL = 5
# How long a decision is kept, in seconds. A right that is withdrawn ends after this time.
DECISION_TTL = int(os.environ.get("MLFLOW_K8S_AUTH_CACHE_TTL_SECONDS", "60"))
# How long the API server may take to answer, in seconds.
TIMEOUT = 10

# The token of the request that is handled. Workspaces are listed as its user sees them.
caller = ContextVar("caller", default=None)


class Cluster:
    """The API of the cluster that this pod runs in."""

    def __init__(self):
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        self.url = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
        self.session = requests.Session()
        # CA bundles and proxies of the environment are for other servers.
        self.session.trust_env = False

    def send(self, method, path, token=None, **options):
        if token is None:
            # Read every time, because it is rotated.
            with open(f"{ACCOUNT}/token") as file:
                token = file.read()
        headers = {"Authorization": f"Bearer {token}"}
        return self.session.request(
            method, self.url + path, headers=headers, verify=f"{ACCOUNT}/ca.crt", timeout=TIMEOUT, **options
        )

    def get(self, path, **parameters):
        """An object or a list; None if it does not exist."""
        response = self.send("GET", path, params=parameters)
        if response.status_code == 404:
            return None
        response.raise_for_status()
        return response.json()


class AccessReviews:
    """Decides what the owner of a token may do, as the cluster does."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.decisions = TTLCache(maxsize=10_000, ttl=DECISION_TTL)

    def allows(self, token, workspace, resource, verb):
        """None if the token is not valid."""
        key = (hashlib.sha256(token.encode()).digest(), workspace, resource, verb)
        if (known := self.decisions.get(key)) is not None:
            return known
        resource, _, subresource = resource.partition("/")
        attributes = {"group": GROUP, "resource": resource, "verb": verb, "namespace": workspace}
        if subresource:
            attributes["subresource"] = subresource
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        response = self.cluster.send("POST", path, token, json=review)
        if response.status_code == 401:
            return None
        response.raise_for_status()
        decision = response.json()["status"].get("allowed", False)
        self.decisions[key] = decision
        return decision


class Namespaces(AbstractStore):
    """Every namespace is a workspace. They are made and deleted by the cluster's own means."""

    def __init__(self, workspace_uri=None):
        self.cluster = Cluster()
        self.reviews = AccessReviews(self.cluster)
        self.selector = os.environ.get("MLFLOW_K8S_WORKSPACE_LABEL_SELECTOR", "")
        extra = os.environ.get("MLFLOW_K8S_NAMESPACE_EXCLUDE_GLOBS", "").split(",")
        self.hidden = HIDDEN + tuple(pattern.strip() for pattern in extra if pattern.strip())

    def list_workspaces(self):
        token = caller.get()
        found = self._workspaces("")
        if token is None:
            return found
        return [one for one in found if self.reviews.allows(token, one.name, "experiments", "list")]

    def get_workspace(self, workspace_name):
        found = self._workspaces(f"metadata.name={workspace_name}")
        if not found:
            raise MlflowException(
                f"there is no workspace {workspace_name!r}: a workspace is a namespace that the server may use",
                RESOURCE_DOES_NOT_EXIST,
            )
        return found[0]

    def get_default_workspace(self):
        name = os.environ.get("MLFLOW_K8S_DEFAULT_WORKSPACE")
        if not name:
            raise NotImplementedError("name a workspace: set MLFLOW_WORKSPACE or call mlflow.set_workspace()")
        return self.get_workspace(name)

    def resolve_artifact_root(self, default_artifact_root, workspace_name):
        path = f"/apis/{GROUP}/v1/namespaces/{workspace_name}/mlflowconfigs/mlflow"
        config = self.cluster.get(path)
        if config is None:
            return default_artifact_root, True
        secret = self.cluster.get(f"/api/v1/namespaces/{workspace_name}/secrets/{ARTIFACT_SECRET}")
        bucket = ((secret or {}).get("data") or {}).get("AWS_S3_BUCKET")
        if not bucket:
            raise MlflowException(
                f"namespace {workspace_name} has an MLflowConfig, but no Secret {ARTIFACT_SECRET} with AWS_S3_BUCKET",
                INVALID_PARAMETER_VALUE,
            )
        root = f"s3://{base64.b64decode(bucket).decode().strip()}"
        below = (config["spec"].get("artifactRootPath") or "").strip("/")
        return (f"{root}/{below}" if below else root), False

    @cached(TTLCache(maxsize=10_000, ttl=NAMESPACE_TTL))
    def _workspaces(self, fields):
        listed = self.cluster.get("/api/v1/namespaces", labelSelector=self.selector, fieldSelector=fields)
        metadata = [namespace["metadata"] for namespace in listed["items"]]
        return [
            Workspace(name=one["name"], description=(one.get("annotations") or {}).get(DESCRIPTION))
            for one in metadata
            if not any(fnmatch(one["name"], pattern) for pattern in self.hidden)
        ]


# What the first part of a path is about. Runs, traces and artifacts belong to experiments.
RESOURCES = {
    "registered-models": "registeredmodels",
    "model-versions": "registeredmodels",
    "webhooks": "registeredmodels",
    "datasets": "datasets",
    "gateway/secrets": "gatewaysecrets",
    "gateway/endpoints": "gatewayendpoints",
    "gateway/model-definitions": "gatewaymodeldefinitions",
    "gateway/guardrails": "gatewayguardrails",
    "gateway/budgets": "gatewaybudgets",
}
# Those that are resources themselves, and not parts of one: to create one is more than to change one.
WHOLE = {"experiments", "registered-models", "datasets", *(name for name in RESOURCES if "/" in name)}
# The files of runs and models. The end of such a path is chosen by users, and says nothing about the request.
ARTIFACTS = "mlflow-artifacts"
# Requests that read, though they are sent as POST.
READS = {
    "search",
    "search-datasets",
    "list",
    "get-latest-versions",
    "batchGetInfos",
    "calculate-filter-correlation",
    "metrics",
}
# Anyone may ask for these: the user interface, the probes and what clients ask first.
PUBLIC = ("", "/", "/health", "/version", "/metrics")
PUBLIC_BELOW = ("/static-files/",)
WORKSPACES = re.compile(r"^/(ajax-)?api/[0-9.]+/mlflow/workspaces(/(?P<name>[^/]*))?$")
INVALID_TOKEN = (401, "UNAUTHENTICATED", "the cluster does not accept the token")


def needs(method, path):
    """The rights that a request needs in its workspace, as pairs of resource and verb."""
    if path.startswith("/gateway/"):
        return [("gatewayendpoints/use", "create")]
    parts = [part for part in path.split("/") if part]
    # /api/2.0/mlflow/experiments/get, /ajax-api/..., /api/2.0/mlflow-artifacts/artifacts/...
    while parts and (parts[0] in ("api", "ajax-api", "mlflow") or parts[0][:1].isdigit()):
        parts = parts[1:]
    collection = parts[0] if parts else ""
    action = parts[-1] if parts else ""
    if collection == "gateway" and len(parts) > 1:
        collection = "/".join(parts[:2])
    if collection == "graphql":
        return [("experiments", "list"), ("registeredmodels", "list")]
    resource = RESOURCES.get(collection, "experiments")
    if collection == ARTIFACTS:
        return [(resource, "get" if method in ("GET", "HEAD") else "update")]
    if method in ("GET", "HEAD") or (method == "POST" and action in READS):
        return [(resource, "list" if action in ("search", "list") else "get")]
    if collection in WHOLE and action in ("create", "delete"):
        return [(resource, action)]
    if collection == "datasets" and method == "DELETE" and len(parts) == 2:
        return [(resource, "delete")]
    return [(resource, "update")]


class Authorization:
    """Lets a request through if its user has the right to it in the namespace of its workspace."""

    def __init__(self, app):
        self.app = app
        self.reviews = AccessReviews(Cluster())
        self.prefix = os.environ.get("_MLFLOW_STATIC_PREFIX", "").rstrip("/")

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"].removeprefix(self.prefix)
        if path in PUBLIC or path.startswith(PUBLIC_BELOW) or path.endswith("/mlflow/server-info"):
            return await self.app(scope, receive, send)
        token = token_of(headers)
        refusal = await anyio.to_thread.run_sync(self.refusal, scope.get("method", "GET"), path, headers, token)
        if refusal is not None:
            return await refuse(send, *refusal)
        variable = caller.set(token)
        try:
            await self.app(scope, receive, send)
        finally:
            caller.reset(variable)

    def refusal(self, method, path, headers, token):
        """Status, code and text for a request that is not allowed."""
        if not token:
            text = "send the token of a user or service account: set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_AUTH=kubernetes"
            return 401, "UNAUTHENTICATED", text
        workspace = headers.get(WORKSPACE_HEADER, "").strip() or os.environ.get("MLFLOW_K8S_DEFAULT_WORKSPACE", "")
        if asked := WORKSPACES.match(path):
            return self.refusal_of_workspaces(method, asked["name"], token)
        if not workspace:
            text = "name a workspace: set MLFLOW_WORKSPACE or call mlflow.set_workspace()"
            return 400, "INVALID_PARAMETER_VALUE", text
        for resource, verb in needs(method, path):
            allowed = self.reviews.allows(token, workspace, resource, verb)
            if allowed is None:
                return INVALID_TOKEN
            if not allowed:
                text = f"the user may not {verb} {resource}.{GROUP} in namespace {workspace}"
                return 403, "PERMISSION_DENIED", text
        return None

    def refusal_of_workspaces(self, method, name, token):
        """Which of them a user sees is decided when they are listed."""
        if method != "GET":
            return 403, "PERMISSION_DENIED", "workspaces are namespaces: change them with kubectl"
        allowed = self.reviews.allows(token, name or "default", "experiments", "list")
        if allowed is None:
            return INVALID_TOKEN
        if name and not allowed:
            return 403, "PERMISSION_DENIED", f"the user may not list experiments.{GROUP} in namespace {name}"
        return None


def token_of(headers):
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return headers.get("x-forwarded-access-token", "").strip()


async def refuse(send, status, code, text):
    body = json.dumps({"error_code": code, "message": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def create_app():
    """The server, in which every request is authorized."""
    from mlflow.server.fastapi_app import create_fastapi_app

    app = create_fastapi_app()
    app.add_middleware(Authorization)
    return app
