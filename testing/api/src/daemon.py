"""The daemon under test: the real program on free ports and sparse files, spoken to over its socket, stopped whatever happens."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

# A daemon or answer that takes longer is broken, not slow.
PATIENCE_SECONDS = 300
DISK_BYTES = 256 << 20


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status, problem):
        super().__init__(f"{status} {problem}")
        self.status = status


def connected(path):
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(PATIENCE_SECONDS)
    connection.sock.connect(path)
    return connection


class Owner:
    """The API as the owner has it, over the Unix socket: no token, no role to be short of."""

    def __init__(self, path):
        self.path = str(path)
        self.connection = None

    def call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        while True:
            is_new = self.connection is None
            try:
                if is_new:
                    self.connection = connected(self.path)
                self.connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = self.connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self.connection = None
                # One that lay idle may have been closed meanwhile.
                if is_new:
                    raise
        if answer.will_close:
            self.connection = None
        content = json.loads(text) if text else None
        if answer.status >= 300:
            raise Refused(answer.status, content)
        if answer.status == 202:
            return self.ended(content)
        return content

    def ended(self, task):
        """Waits for a task, for which only a bounded time is given."""
        until = time.monotonic() + PATIENCE_SECONDS
        while task["state"] in ("queued", "running"):
            if time.monotonic() > until:
                raise TimeoutError(f"task {task} does not end")
            task = self.call("GET", f"/api/v1/tasks/{task['id']}?wait_seconds=5")
        if task["state"] != "succeeded":
            raise Refused(500, task)
        return task

    def names(self, kind):
        return [item["name"] for item in self.call("GET", f"/api/v1/{kind}?limit=1000")["items"]]

    def place(self, kind, name):
        return f"/api/v1/{kind}/{quote(name, safe='')}"


class Daemon:
    def __init__(self, server):
        self.server = server
        self.directory = Path(tempfile.mkdtemp(prefix="forebay-api."))
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.child = None

    def start(self):
        words = ["serve", "--data", self.data, "--shards", "2", "--memory", "256M"]
        words += ["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"]
        with open(self.log, "ab") as log:
            # In the temporary directory: a relative path in a request leads nowhere else.
            self.child = subprocess.Popen(
                [self.server, *words], cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self.child.poll() is not None:
                raise RuntimeError(f"the daemon ended with {self.child.returncode}:\n{self.end_of_log()}")
            try:
                self.address = json.loads((self.data / "addresses.json").read_text())["http"]
                self.owner = Owner(self.data / "forebay.sock")
                self.owner.call("GET", "/api/v1/server")
                return self
            except (OSError, ValueError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise RuntimeError(f"the daemon is not ready:\n{self.end_of_log()}") from None
                time.sleep(0.05)

    def run(self, *words):
        """A command of the program's, over the socket; what it prints."""
        command = [self.server, "--data", self.data, "--json", *words]
        done = subprocess.run(
            command, cwd=self.directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment()
        )
        if done.returncode != 0:
            raise RuntimeError(f"forebay {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def disk(self, name):
        path = self.directory / name
        with open(path, "wb") as file:
            file.truncate(DISK_BYTES)
        return str(path)

    def is_alive(self):
        return self.child is not None and self.child.poll() is None

    def end_of_log(self):
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def end(self):
        """Returns what is wrong with how it ended, if anything."""
        wrong = None
        if self.child is not None:
            if self.child.poll() is not None:
                wrong = f"the daemon ended by itself with {self.child.returncode}:\n{self.end_of_log()}"
            else:
                self.child.terminate()
                try:
                    self.child.wait(PATIENCE_SECONDS)
                    if self.child.returncode != 0:
                        wrong = f"the daemon was stopped and ended with {self.child.returncode}:\n{self.end_of_log()}"
                except subprocess.TimeoutExpired:
                    self.child.kill()
                    self.child.wait()
                    wrong = f"the daemon did not stop within {PATIENCE_SECONDS} s:\n{self.end_of_log()}"
            self.child = None
        shutil.rmtree(self.directory, ignore_errors=True)
        return wrong


def environment():
    """What the developer's own environment says about a daemon is not meant here."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
