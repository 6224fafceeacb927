"""Measures the reactions of the manager that runs: reactions.py NAME

Prints the names of the columns, and the row of the manager. $SERVER, $CA and $TOKEN lead to the cluster, which has the LocalQueue `ours`
with quota for one Job.
"""

import http.client
import json
import os
import queue
import ssl
import statistics
import sys
import threading
import time
import urllib.parse

ROUNDS = 20
LIMIT = 60
JOBS = "/apis/batch/v1/namespaces/default/jobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{KUEUE}/namespaces/default/workloads"

server = urllib.parse.urlsplit(os.environ["SERVER"])
context = ssl.create_default_context(cafile=os.environ["CA"])


def connect():
    return http.client.HTTPSConnection(server.hostname, server.port, context=context, timeout=LIMIT)


def send(connection, method, path, body=None, kind="application/json"):
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": kind}
    connection.request(method, path, body and json.dumps(body), headers)
    return connection.getresponse()


def call(method, path, body=None, kind="application/json"):
    response = send(connection, method, path, body, kind)
    text = response.read()
    if response.status >= 300:
        raise SystemExit(f"{method} {path}: {response.status} {text.decode()}")
    return json.loads(text)


# What has changed, with the time when that was heard.
changes = queue.Queue()


def watch(path):
    response = send(connect(), "GET", f"{path}?watch=true")
    for line in response:
        changes.put((time.monotonic(), json.loads(line)))


def until(is_it):
    """When something was heard of first."""
    while True:
        try:
            heard, change = changes.get(timeout=LIMIT)
        except queue.Empty:
            left = [call("GET", path)["items"] for path in [JOBS, WORKLOADS]]
            raise SystemExit(f"nothing happens any more; there are {json.dumps(left)}") from None
        if is_it(change["type"], change["object"]):
            return heard


def create(name, priority=None):
    labels = {"kueue.x-k8s.io/queue-name": "ours"} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    job = {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": pod}}}
    call("POST", JOBS, job)


def delete(name):
    call("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")


def is_of(job, thing):
    return any(owner["name"] == job for owner in thing["metadata"].get("ownerReferences", []))


def has(condition, status, job):
    def is_it(_, thing):
        conditions = thing.get("status", {}).get("conditions", [])
        return is_of(job, thing) and any(own["type"] == condition and own["status"] == status for own in conditions)
    return is_it


def starts(job):
    return lambda _, thing: thing["metadata"]["name"] == job and thing.get("spec", {}).get("suspend") is False


def gone(job):
    return lambda kind, thing: kind == "DELETED" and is_of(job, thing)


def admission(index):
    began = time.monotonic()
    create(f"one-{index}")
    took = until(starts(f"one-{index}")) - began
    delete(f"one-{index}")
    until(gone(f"one-{index}"))
    return {"created to started": took}


def preemption(index):
    create(f"low-{index}")
    until(starts(f"low-{index}"))
    began = time.monotonic()
    create(f"high-{index}", "high")
    evicted = until(has("Evicted", "True", f"low-{index}")) - began
    started = until(starts(f"high-{index}")) - began
    delete(f"low-{index}")
    delete(f"high-{index}")
    until(gone(f"high-{index}"))
    return {"preemptor created to victim evicted": evicted, "to preemptor started": started}


def succession(index):
    create(f"first-{index}")
    until(starts(f"first-{index}"))
    create(f"next-{index}")
    until(has("QuotaReserved", "False", f"next-{index}"))
    began = time.monotonic()
    delete(f"first-{index}")
    took = until(starts(f"next-{index}")) - began
    delete(f"next-{index}")
    until(gone(f"next-{index}"))
    return {"running Job deleted to next one started": took}


connection = connect()
call("PATCH", f"{KUEUE}/clusterqueues/everybody", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}},
     "application/merge-patch+json")
classes = call("GET", f"{KUEUE}/workloadpriorityclasses")["items"]
if not classes:
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    call("POST", f"{KUEUE}/workloadpriorityclasses", kind | {"metadata": {"name": "high"}, "value": 1000})
for path in [JOBS, WORKLOADS]:
    threading.Thread(target=watch, args=[path], daemon=True).start()
found = {}
for measure in [admission, preemption, succession]:
    for index in range(ROUNDS):
        for what, seconds in measure(index).items():
            found.setdefault(what, []).append(1000 * seconds)
print(" | ".join(found))
cells = [f"{statistics.median(times):.0f} ms ({min(times):.0f}-{max(times):.0f})" for times in found.values()]
print(f"| {sys.argv[1]} | {' | '.join(cells)} |")
