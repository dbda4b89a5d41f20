"""Runs schemathesis with each role, and the table of who may call what, against a daemon of its own each; counts what came of it."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import access
from daemon import Daemon, environment
from document import DOCUMENT, TOKEN_ROLES, operations, reasons
from world import World

HERE = Path(__file__).resolve().parent
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance",
    "negative_data_rejection", "unsupported_method", "ignored_auth", "problem_conformance", "role_conformance",
]  # fmt: skip
# A run that takes longer hangs; at length it takes what it takes.
SECONDS_MAX = 1800
EXAMPLES = 4
# As many as the smallest machine has cores.
WORKERS = 2


class Stopped(Exception):
    """Somebody ended this from outside."""


class Running:
    """What runs now, so that it can be ended with us."""

    children = set()
    stopped = False

    @classmethod
    def stop(cls, *_):
        cls.stopped = True
        for child in list(cls.children):
            child.kill()


class Count:
    """What one run found. It says so at once when it is over: runs go on beside each other."""

    def __init__(self):
        self.passed, self.failed, self.lines = 0, 0, []

    def say(self, name, wrong, replay=None):
        if not wrong:
            self.passed += 1
            return
        self.failed += 1
        self.lines.append(f"FAILED  {name}: {wrong}")
        if replay:
            self.lines.append(f"        replay: {replay}")


def arguments():
    parser = argparse.ArgumentParser(prog="testing/api/run")
    parser.add_argument("--server", required=True, type=Path, help="the program")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help=f"random requests for each operation and role, besides the systematic ones; {EXAMPLES}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--role", action="append", choices=TOKEN_ROLES, help="only with this one")
    parser.add_argument("--operation", action="append", help="only this one, as operationId")
    given = parser.parse_args()
    known = {operation.id for operation in operations()}
    for name in given.operation or []:
        if name not in known:
            parser.error(f"the document has no operation {name}")
    if not os.access(given.server, os.X_OK):
        parser.error(f"{given.server} is no program")
    given.server = given.server.resolve()
    return given


def main():
    given = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, Running.stop)
    runs = [("who may call what", who_may_call_what)] if not given.role and not given.operation else []
    # The one with the most to do first.
    for role in reversed(TOKEN_ROLES):
        if not given.role or role in given.role:
            runs.append((f"schemathesis as {role}", partial(schemathesis, role)))
    # Each has a daemon of its own, so they can run at once.
    with ThreadPoolExecutor(WORKERS) as workers:
        counts = list(workers.map(lambda run: with_daemon(given, *run), runs))
    passed, failed = sum(count.passed for count in counts), sum(count.failed for count in counts)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


def with_daemon(given, title, body):
    began = time.monotonic()
    count, daemon = Count(), Daemon(given.server)
    wrong = None
    try:
        daemon.start()
        disks = World.disks_of(daemon)
        World(daemon.owner, disks).mend()
        tokens = {role: daemon.run("token", "create", role, "--role", role)["secret"] for role in TOKEN_ROLES}
        body(given, count, daemon, disks, tokens)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    finally:
        ended = daemon.end()
    count.say(f"{title}: a daemon that lasts and stops", "stopped" if Running.stopped else wrong or ended)
    count.lines.append(f"{title}: {count.passed} passed, {count.failed} failed, {time.monotonic() - began:.0f} s")
    print("\n".join(count.lines), flush=True)
    return count


def who_may_call_what(given, count, daemon, disks, tokens):
    served = daemon.owner.call("GET", "/api/v1/openapi.json")
    same = served == json.loads(DOCUMENT.read_text())
    count.say("the daemon's document is docs/reference/openapi.json", None if same else "they differ: the program is of another version, or the document was not made again")
    for name, wrong in access.table(daemon.address, tokens):
        count.say(name, wrong, f"testing/api/run --server {given.server} (the table is always whole)")


def schemathesis(role, given, count, daemon, disks, tokens):
    reports, reached = daemon.directory / "reports", daemon.directory / "reached"
    reached.touch()
    command = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", HERE.parent / "schemathesis.toml", "run", DOCUMENT, "--url", f"http://{daemon.address}",
        "--header", f"Authorization: Bearer {tokens[role]}", "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
        "--max-examples", str(given.examples), "--seed", str(given.seed), "--generation-database", "none", "--workers", "1",
        "--request-timeout", "120", "--continue-on-failure", "--no-color", "--warnings", "off",
        "--report", "ndjson", "--report-ndjson-path", reports / "events.ndjson",
    ]  # fmt: skip
    left = reasons("streams.txt")
    for operation in operations():
        # An operation that was asked for is left out all the same if it has no end.
        if operation.id in left or (given.operation and operation.id not in given.operation):
            command += ["--exclude-operation-id", operation.id]
    more = {
        "API_ROLE": role, "API_SOCKET": str(daemon.data / "forebay.sock"), "API_DISKS": json.dumps(disks), "PYTHONPATH": str(HERE),
        "API_REACHED": str(reached),
        "SCHEMATHESIS_HOOKS": "hooks", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    output = daemon.directory / "output"
    with open(output, "wb") as file:
        child = subprocess.Popen(command, cwd=daemon.directory, env={**environment(), **more}, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    Running.children.add(child)
    try:
        if Running.stopped:
            raise Stopped
        status = child.wait(SECONDS_MAX if given.examples <= EXAMPLES else None)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"schemathesis does not end within {SECONDS_MAX} s:\n{tail(output)}") from None
    finally:
        child.kill()
        child.wait()
        Running.children.discard(child)
    results = outcome(reports / "events.ndjson")
    for name, is_good in sorted(results.items()):
        operation = next(operation.id for operation in operations() if f"{operation.method} {operation.path}" == name)
        replay = f"testing/api/run --server {given.server} --role {role} --seed {given.seed} --examples {given.examples} --operation {operation}"
        count.say(f"{role} {operation}", None if is_good else "see above", replay)
    if not given.operation:
        asked = {operation.id for operation in operations() if operation.admits(role) and (role == "admin" or operation.id not in access.OWN_ACCOUNT)} - set(left) - set(reasons("unreached.txt"))
        never = sorted(asked - set(reached.read_text().split()))
        count.say(f"{role}: each operation was done once at least", ", ".join(never) and f"{', '.join(never)}: nothing but refusals shows little")
    if status != 0 or not results:
        count.lines.append(output.read_text(errors="replace"))
    if (status == 0) != all(results.values()) or not results:
        raise RuntimeError(f"schemathesis ended with {status}, and {len(results)} operations have a result")


def outcome(path):
    """Of each operation, whether everything that was asked was answered as it should be."""
    results = {}
    for line in path.read_text().splitlines():
        ((kind, event),) = json.loads(line).items()
        if kind == "ScenarioFinished" and event["status"] != "skip":
            label = event["recorder"]["label"]
            results[label] = results.get(label, True) and event["status"] == "success"
    return results


def tail(path):
    return path.read_text(errors="replace")[-3000:]


if __name__ == "__main__":
    sys.exit(main())
