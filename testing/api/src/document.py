"""docs/reference/openapi.json as the tests need it: one entry for each operation, with its role."""

import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
DOCUMENT = HERE.parent.parent / "docs" / "reference" / "openapi.json"
# From the least to the most; `anybody` needs not even to be known.
ROLES = ["anybody", "viewer", "operator", "admin"]
TOKEN_ROLES = ROLES[1:]


class Operation:
    def __init__(self, method, path, raw):
        self.method, self.path, self.id = method.upper(), path, raw["operationId"]
        said = re.fullmatch(r"Role: (viewer|operator|admin)\.|No login needed\.", raw["description"])
        if said is None:
            raise ValueError(f"the document does not say which role {self.id} needs: {raw['description']!r}")
        self.role = said.group(1) or "anybody"
        # What an operation is said to need and what it is said to be secured by are two statements, which may differ.
        if (self.role == "anybody") != (raw.get("security") == [{}]):
            raise ValueError(f"{self.id}: the role is {self.role}, the security {raw.get('security')}")
        self.body = "requestBody" in raw
        self.parameter = (re.findall(r"\{(\w+)\}", path) or [None])[0]
        # The collection that its path names: /api/v1/KIND/{...}.
        self.kind = path.split("/")[3] if path.startswith("/api/v1/") else None

    def admits(self, role):
        return ROLES.index(role) >= ROLES.index(self.role)


def operations():
    paths = json.loads(DOCUMENT.read_text())["paths"]
    return [Operation(method, path, raw) for path, item in paths.items() for method, raw in item.items()]


def reasons(name):
    """Operations that are an exception, with the reason: a line each."""
    lines = [line.split(None, 1) for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")]
    listed = {operation: reason for operation, reason in lines}
    unknown = set(listed) - {operation.id for operation in operations()}
    if unknown:
        raise ValueError(f"{name} names what the document does not have: {sorted(unknown)}")
    return listed
