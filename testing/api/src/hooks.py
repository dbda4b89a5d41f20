"""What schemathesis is told of the appliance: where names lead, and what else has to hold of an answer.

Loaded by schemathesis itself, in a process for each role. Left alone it would ask for volumes with random names and hear that there are none;
so names of what is there are put into most requests, and fields that it made up into bodies that would otherwise be right. Which, is decided by a
hash of what it made up: the same seed is the same requests. Whatever is wrong on purpose stays as it is.
"""

import hashlib
import json
import os
from collections import Counter

import schemathesis
from schemathesis.core.parameters import ParameterLocation

from daemon import Owner
from document import operations
from world import NAMES, ON_VAULT, World, bodies, segment

ROLE = os.environ["API_ROLE"]
DISKS = json.loads(os.environ["API_DISKS"])
WORLD = World(Owner(os.environ["API_SOCKET"]), DISKS)
BODIES = bodies(DISKS)
OPERATIONS = {operation.id: operation for operation in operations()}
EXPRESSIONS = ["nbd.ops[op=read]", "volume.ops[volume]", "pool.time[class]", "cpu.used", "disk.latency[device]", "nbd.ops[latency]", "volume.ops["]
WAIT_SECONDS_MAX = 1
# What keeps a pool busy for seconds however it is asked for: once is enough. After that they lead nowhere.
LONG = {"PoolCalibrate"}
DONE = set()
# Operations that did what they were asked for, once at least.
REACHED = set()
TRIED = Counter()
# `code` of problems by status, as docs/reference/api.md has it.
CODES = {
    400: {"invalid"}, 401: {"unauthenticated"}, 403: {"forbidden"}, 404: {"not_found"}, 405: {"method_not_allowed"}, 408: {"timeout"},
    409: {"conflict", "unsafe"}, 412: {"precondition_failed"}, 413: {"too_large"}, 415: {"unsupported_media_type"}, 422: {"key_reused"},
    429: {"busy"}, 500: {"corrupt", "io", "internal"}, 501: {"not_supported"}, 503: {"suspended", "stopped"}, 507: {"no_space"},
}  # fmt: skip


def operation_of(case):
    return OPERATIONS[case.operation.definition.raw["operationId"]]


class Dice:
    """Numbers that follow from what was made up."""

    def __init__(self, case):
        made_up = [case.method, case.path, case.path_parameters, case.query, repr(case.body)]
        self.state = hashlib.sha256(repr(made_up).encode()).digest()

    def below(self, n):
        self.state = hashlib.sha256(self.state).digest()
        return int.from_bytes(self.state[:8]) % n

    def of(self, items):
        return items[self.below(len(items))]


def is_wrong(case, location):
    """Whether schemathesis made it wrong on purpose."""
    components = case.meta.components if case.meta else {}
    info = components.get(location)
    return info is not None and info.mode.is_negative


@schemathesis.hook
def before_load_schema(context, document):
    """OpenAPI has names for signed integers only; a format says no more than what a number is kept in. What is never negative is unsigned here,
    so numbers up to 2^64 - 1 are right, and those from 2^64 on are wrong."""
    unsigned = {"int64": (1 << 64) - 1, "int32": (1 << 32) - 1}

    def walk(node):
        if isinstance(node, dict):
            kind, least = node.get("format"), node.get("minimum")
            if isinstance(kind, str) and kind in unsigned and isinstance(least, int) and least >= 0:
                node.setdefault("maximum", unsigned[node.pop("format")])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)


@schemathesis.hook
def before_call(context, case, kwargs):
    operation, dice = operation_of(case), Dice(case)
    # Until it was done once, everything is as it should be, and one name after the other is tried.
    is_first = operation.id not in REACHED
    if operation.id in LONG and operation.id in DONE:
        case.path_parameters = {operation.parameter: "nowhere"}
    elif operation.parameter and not is_wrong(case, ParameterLocation.PATH) and (is_first or dice.below(8)):
        names = WORLD.candidates(operation.kind, operation.id)
        if operation.id in ON_VAULT:
            names = [name for name in names if name.startswith("vault")]
        if names:
            TRIED[operation.id] += 1
            name = names[TRIED[operation.id] % len(names)] if is_first else dice.of(names)
            case.path_parameters = {operation.parameter: segment(name)}
    if isinstance(case.query, dict) and not is_wrong(case, ParameterLocation.QUERY):
        case.query = asked(case.query, dice)
        if operation.id == "ReportDownload" and "format" in case.query:
            case.query["format"] = dice.of(["html", "json"])
    if case.headers is not None and not is_wrong(case, ParameterLocation.HEADER):
        # What was made up is never the object's tag, and one key for many requests is refused: both would be all that is ever wrong.
        if "Idempotency-Key" in case.headers:
            if is_first or dice.below(4):
                del case.headers["Idempotency-Key"]
            else:
                case.headers["Idempotency-Key"] = dice.state.hex()
        if "If-Match" in case.headers and (is_first or dice.below(4)):
            case.headers["If-Match"] = "*"
    if operation.id == "DiskLocate" and isinstance(case.body, dict) and isinstance(case.body.get("seconds"), int):
        case.body["seconds"] = min(case.body["seconds"], WAIT_SECONDS_MAX)
    if operation.id == "PoolImport" and operation.admits(ROLE) and dice.below(2):
        WORLD.closed()
    if operation.id in BODIES and isinstance(case.body, dict) and not is_wrong(case, ParameterLocation.BODY):
        right = BODIES[operation.id]
        case.body = dict(right) if is_first else written(case.body, right, dice)


def asked(query, dice):
    query = dict(query)
    if isinstance(query.get("wait_seconds"), int):
        query["wait_seconds"] = min(query["wait_seconds"], WAIT_SECONDS_MAX)
    if "expression" in query and dice.below(2):
        # As people ask; with times and steps that were made up, hardly any question is right.
        return {"expression": dice.of(EXPRESSIONS), "from": -60, "to": 0}
    if "expression" in query and dice.below(4):
        query["expression"] = dice.of(EXPRESSIONS)
    for name, kind in (("pool", "pools"), ("volume", "volumes"), ("host", "hosts")):
        if name in query and dice.below(2):
            query[name] = dice.of(NAMES[kind])
    if "format" in query and dice.below(4):
        query["format"] = dice.of(["json", "csv"])
    return query


def written(made_up, right, dice):
    kind = dice.below(8)
    if kind == 0:
        return made_up
    body, fields = dict(right), sorted(made_up)
    # Three of seven as they should be, four with a field or two that are not.
    for _ in range(max(0, kind // 2 - 1)):
        if fields:
            name = dice.of(fields)
            body[name] = made_up[name]
    return body


@schemathesis.hook
def after_call(context, case, response):
    if 200 <= response.status_code < 300 and asks_as_documented(case, response) and operation_of(case).id not in REACHED:
        REACHED.add(operation_of(case).id)
        with open(os.environ["API_REACHED"], "a") as file:
            print(operation_of(case).id, file=file)
    is_change = response.request.method not in ("GET", "HEAD", "OPTIONS", "TRACE")
    is_done = 200 <= response.status_code < 300 and "dry_run=true" not in response.request.url
    # Before an import, a pool was closed for it.
    if is_change and (is_done or operation_of(case).id == "PoolImport" and operation_of(case).admits(ROLE)):
        DONE.add(operation_of(case).id)
        WORLD.mend()


def asks_as_documented(case, response):
    return response.request.method == case.operation.method.upper() and "Authorization" in response.request.headers


@schemathesis.check
def problem_conformance(context, response, case):
    """An error is a problem document that says the same as the status."""
    if response.status_code < 400 or response.request.method == "HEAD":
        return
    problem = response.json()
    assert problem["status"] == response.status_code, f"status {response.status_code}, and the document says {problem['status']}"
    assert problem["code"] in CODES.get(response.status_code, ()), f"status {response.status_code} does not go with {problem['code']}"
    assert problem["type"] == f"urn:forebay:problem:{problem['code']}", f"{problem['type']} is not the type of {problem['code']}"
    assert problem["detail"].strip(), "nothing says what happened"


@schemathesis.check
def role_conformance(context, response, case):
    """Beyond the role everything is refused as that, whatever else is wrong with it; within it nothing is refused for want of a role."""
    if not asks_as_documented(case, response):
        return
    operation, status = operation_of(case), response.status_code
    if operation.role == "anybody":
        return  # They ask for secrets of their own.
    if not operation.admits(ROLE):
        assert status == 403, f"{operation.id} is for {operation.role}, {ROLE} asked, and the answer was {status}"
    else:
        assert status != 401, f"{operation.id} refuses a token that is valid"
        # A token is no user: it has no account of its own to look at or change.
        own = operation.id in ("UserShow", "UserSet") and ROLE != "admin"
        assert status != 403 or own, f"{operation.id} is for {operation.role}, {ROLE} asked, and was forbidden: {response.text[:300]}"
