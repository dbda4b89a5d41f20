"""A mail server for tests: python3-aiosmtpd with TLS and a login.

smtp_server.py MODE PORT CERTIFICATE KEY OUT
MODE: starttls, tls or plain. A mail becomes a line of JSON in OUT, as Python's own mail parser understands it. Recipients that begin with "gone" are
refused for good, those that begin with "later" for now. starttls and tls need the login ann with the password "pass word".
"""
import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

mode, port, certificate, key, out = sys.argv[1:]


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone"):
            return "550 5.1.1 no such mailbox"
        if address.startswith("later"):
            return "451 4.2.1 mailbox is busy"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        line = {
            "protected": bool(session.ssl) or mode == "tls",
            "login": bool(session.authenticated),
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "defects": [str(defect) for defect in mail.defects],
            "headers": {name: str(value) for name, value in mail.items()},
            "names": [name for name, _ in mail.items()],
            "text": mail.get_content(),
        }
        with open(out, "a") as file:
            file.write(json.dumps(line) + "\n")
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    right = data.login == b"ann" and data.password == b"pass word"
    return AuthResult(success=right, handled=False if not right else True)


context = None
if mode != "plain":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)


def protocol():
    return SMTP(
        Handler(),
        hostname="localhost",
        tls_context=context if mode == "starttls" else None,
        require_starttls=mode == "starttls",
        authenticator=authenticate,
        auth_required=mode != "plain",
        auth_require_tls=mode == "starttls",
    )


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", int(port), ssl=context if mode == "tls" else None)
    await server.serve_forever()


asyncio.run(main())
