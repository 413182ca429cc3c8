"""A real Redis that requires a password: with the users of the ACL file that the command writes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fallow.shared.runtime.stack.secured.valkey import SecuredValkey
from fallow.shared.runtime.stack.valkey import program_in_wheel
from fallow.shared.view.access.users import ADMIN, declared_users
from tests.cli.usage.test_commands import call

USERS = (ADMIN, *declared_users("any"))


def password_of(user: str) -> str:
    return f"pass-of-the-{user}"


@dataclass
class GuardedRedis:
    """A server with the ACL file as the command wrote it."""

    folder: Path
    namespace: str
    server: SecuredValkey

    def url(self, user: str | None = None, password: str | None = None) -> str:
        return self.server.url(user, password or password_of(user or ""))

    def redis(self, user: str | None = None) -> Any:
        return Redis.from_url(self.url(user), decode_responses=True)

    def command(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        return call("--redis", self.url(user), "--namespace", self.namespace, *words)


def written_passwords(folder: Path) -> Path:
    folder.mkdir()
    for user in USERS:
        (folder / user).write_text(password_of(user) + "\n")
    return folder


@contextmanager
def guarded_redis(folder: Path, namespace: str) -> Iterator[GuardedRedis]:
    program = program_in_wheel()
    if isinstance(program, str):
        pytest.skip(program)
    file = folder / "users.acl"
    passwords = written_passwords(folder / "passwords")
    done = call("--namespace", namespace, "view", "users", "--passwords", str(passwords), "--out", str(file))
    assert done.returncode == 0, done.stderr
    server = SecuredValkey(program, folder / "data", file.read_text())
    server.start()
    yield GuardedRedis(folder, namespace, server)
    server.stop()
