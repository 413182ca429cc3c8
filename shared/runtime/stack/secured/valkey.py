"""A Valkey or Redis that requires a password, with TLS where its program has it."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.stack.secured.certificate import make_certificate
from fallow.shared.runtime.stack.valkey import START_WAIT_S, Program, Valkey, answer_of

NO_TLS = ("Failed finding TLS support", "Bad directive")
"""What a server says that was built without TLS and is asked for it: Valkey and Redis from 7.2, Redis before."""

PROBE_WAIT_S, ANSWER_WAIT_S = 10.0, 0.5


def has_tls(program: Program) -> bool:
    """Whether this server was built with TLS. Asked for it without a certificate it ends at once, and says why."""
    argv = [program.path, "--bind", LOCAL, "--port", "0", "--tls-port", str(free_port()), "--save", ""]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PROBE_WAIT_S)
    except subprocess.TimeoutExpired:
        return True
    return not any(text in done.stdout + done.stderr for text in NO_TLS)


class SecuredValkey(Valkey):
    """One server that knows only the users of an ACL file, in the words of Redis (`users`). It speaks TLS alone, with a
    certificate of its own, where its program has TLS (`has_tls`).
    """

    def __init__(self, program: Program, data_dir: Path, users: str) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        port, self.has_tls, self._ca_file = free_port(), has_tls(program), data_dir / "ca.pem"
        self.users_file = data_dir / "users.acl"
        self.users_file.write_text(users, encoding="ascii")
        more = {"aclfile": str(self.users_file), **(self._tls_options(data_dir, port) if self.has_tls else {})}
        super().__init__(program, data_dir, more=more, port=port)
        self.description = f"{program.version}, with users and {'TLS' if self.has_tls else 'without TLS'}"

    def url(self, user: str | None = None, password: str = "") -> str:
        """Its URL for this user, or for a stranger."""
        proof = "" if user is None else f"{user}:{password}@"
        scheme, more = ("rediss", f"?ssl_ca_certs={self._ca_file}") if self.has_tls else ("redis", "")
        return f"{scheme}://{proof}{LOCAL}:{self.port}/0{more}"

    @property
    def address(self) -> str:
        """Its URL without a password, which the server refuses."""
        return self.url()

    def start(self) -> None:
        """Starts it and waits until it asks for a password."""
        self._child.start()
        self._child.wait_until(lambda: b"NOAUTH" in self._answer(), wait_s=START_WAIT_S)

    def _tls_options(self, folder: Path, port: int) -> dict[str, str]:
        made = make_certificate(folder)
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(made.file),
            "tls-key-file": str(made.key_file),
            "tls-auth-clients": "no",
        }

    def _answer(self) -> bytes:
        if not self.has_tls:
            return answer_of(LOCAL, self.port)
        tls = ssl.create_default_context(cafile=self._ca_file)
        try:
            with (
                socket.create_connection((LOCAL, self.port), timeout=ANSWER_WAIT_S) as plain,
                tls.wrap_socket(plain, server_hostname=LOCAL) as connection,
            ):
                connection.sendall(b"PING\r\n")
                return connection.recv(64)
        except OSError:
            return b""
