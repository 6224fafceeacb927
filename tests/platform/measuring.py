"""What measurements of `quintet up` share."""

import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

# How often something is looked at.
PERIOD = 0.05


def show(what, value):
    print(f"{what:58} {value}", flush=True)


def until(what, look, limit=600):
    """Waits for something; returns it."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(PERIOD)
    sys.exit(f"waited {limit} s in vain for {what}")


class Platform:
    """A running `quintet up`."""

    def __init__(self, program, directory, *options):
        self.program, self.directory = program, directory
        self.began = time.monotonic()
        command = [program, "up", "--port", "0", "--data-dir", directory, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.took = time.monotonic() - self.began
        if "is up at" not in line:
            sys.exit(f"quintet up did not start: {line}")
        config = open(f"{directory}/kubeconfig").read()
        value = lambda key: re.search(rf"{key}: (\S+)", config).group(1)
        self.server = urllib.parse.urlparse(value("server")).netloc
        files = {}
        for key in ["certificate-authority-data", "client-certificate-data", "client-key-data"]:
            file = tempfile.NamedTemporaryFile(delete=False)
            file.write(base64.b64decode(value(key)))
            file.close()
            files[key] = file.name
        self.tls = ssl.create_default_context(cafile=files["certificate-authority-data"])
        self.tls.load_cert_chain(files["client-certificate-data"], files["client-key-data"])
        for name in files.values():
            os.remove(name)
        self.connection = self.connect()

    def connect(self):
        return http.client.HTTPSConnection(self.server, context=self.tls)

    def request(self, method, path, body=None, kind="application/json", connection=None):
        connection = connection or self.connection
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
        response = connection.getresponse()
        text = response.read()
        if response.status == 404 and method in ("GET", "DELETE"):
            return None
        if response.status >= 300:
            sys.exit(f"{method} {path}: {response.status} {text.decode()}")
        return json.loads(text)

    def down(self):
        subprocess.run([self.program, "down", "--data-dir", self.directory], check=True, stdout=subprocess.DEVNULL)
        self.process.wait()


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Resident memory, and the share of it that is not shared with others, in MiB."""
    text = open(f"/proc/{pid}/smaps_rollup").read()
    of = lambda key: int(re.search(rf"^{key}:\s+(\d+)", text, re.M).group(1)) / 1024
    return of("Rss"), of("Pss")
