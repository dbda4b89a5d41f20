"""Who may call what: each operation of the document with each role, with none, and with a token that is none.

What is asked is right in form and leads nowhere, so nothing comes of what is admitted; and what has no end is hung up on. A lesser role has to hear
403 and nobody 401, whatever else could be said; who is admitted must hear neither.
"""

import http.client
import json

from document import TOKEN_ROLES, operations
from world import segment

NOWHERE = "00000000-0000-4000-8000-000000000000"
# A token belongs to no user: who may see only himself sees nothing, and that is a 403 of the operation's own.
OWN_ACCOUNT = {"UserShow", "UserSet"}


def ask(address, operation, token):
    """The status. The body is not waited for."""
    path = operation.path
    if operation.parameter:
        path = path.replace("{" + operation.parameter + "}", segment(NOWHERE))
    if operation.id == "StatisticQuery":
        path += "?expression=volume.ops"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = None
    if operation.body:
        # An object without fields: whoever gets so far changes nothing by it.
        headers["Content-Type"] = "application/octet-stream" if operation.id == "SnapshotReceive" else "application/json"
        body = b"{}"
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request(operation.method, path, body, headers)
        answer = connection.getresponse()
        code = None
        if answer.status >= 400:
            code = json.loads(answer.read()).get("code")
        return answer.status, code
    finally:
        connection.close()


def table(address, tokens):
    """Yields each case with what is wrong, if anything."""
    for operation in operations():
        for role in TOKEN_ROLES:
            status, code = ask(address, operation, tokens[role])
            name = f"{operation.id}, for {operation.role}, as {role}"
            if not operation.admits(role):
                yield name, None if (status, code) == (403, "forbidden") else f"should be forbidden, and was {status} {code}"
            elif operation.role == "anybody":
                # What it says to somebody who is known is its own affair; a wrong secret is 401 there.
                yield name, None if status < 500 else f"{status} {code}"
            elif operation.id in OWN_ACCOUNT and role != "admin":
                yield name, None if status == 403 else f"is nobody's own account, and was {status} {code}"
            else:
                yield name, f"should be admitted, and was {status} {code}" if status in (401, 403) or status >= 500 else None
        for title, token in (("nobody", None), ("a token that is none", "forebay_" + "0" * 64)):
            status, code = ask(address, operation, token)
            name = f"{operation.id}, for {operation.role}, as {title}"
            if operation.role != "anybody":
                yield name, None if (status, code) == (401, "unauthenticated") else f"should be unauthenticated, and was {status} {code}"
            else:
                yield name, None if status < 500 else f"{status} {code}"
