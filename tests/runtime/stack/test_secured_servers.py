"""A secured Valkey or Redis lets in its users alone, with TLS where its program has it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import redis

from fallow.shared.runtime.stack.secured.certificate import make_certificate
from fallow.shared.runtime.stack.secured.valkey import SecuredValkey, has_tls
from fallow.shared.runtime.stack.server import Source
from fallow.shared.runtime.stack.valkey import Program, program_in_wheel, program_on_path

WORD = "a-long-enough-word"
USERS = f"user default off\nuser one on #{sha256(WORD.encode()).hexdigest()} ~* +@all\n"


@pytest.fixture(params=["path", "wheel"])
def program(request: pytest.FixtureRequest) -> Program:
    found = program_on_path() if request.param == "path" else program_in_wheel()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def secured(program: Program, tmp_path: Path) -> Iterator[SecuredValkey]:
    server = SecuredValkey(program, tmp_path / "redis", USERS)
    server.start()
    yield server
    server.stop()


def test_only_a_user_with_its_password_comes_in(secured: SecuredValkey) -> None:
    assert redis.Redis.from_url(secured.url("one", WORD)).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(secured.url()).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(secured.url("one", "another-word")).ping()


def test_where_the_program_has_tls_nothing_else_is_spoken(secured: SecuredValkey) -> None:
    if not secured.has_tls:
        pytest.skip(f"{secured.description}: built without it")
    plain = secured.url("one", WORD).replace("rediss:", "redis:").partition("?")[0]
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(plain, socket_timeout=2).ping()
    with pytest.raises(redis.ConnectionError, match="certificate"):
        redis.Redis.from_url(secured.url("one", WORD).partition("?")[0]).ping()


@pytest.mark.parametrize(
    ("said", "has"),
    [
        ("# Missing implement of connection type tls\n# Failed finding TLS support.", False),
        (">>> 'tls-port \"17998\"'\nBad directive or wrong number of arguments", False),
        ("# No tls-cert-file configured!\n# Failed to configure TLS. Check logs for more info.", True),
    ],
)
def test_a_server_says_by_its_end_whether_it_was_built_with_tls(tmp_path: Path, said: str, has: bool) -> None:
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit 1\n")
    server.chmod(0o755)
    assert has_tls(Program(str(server), "a server", Source.PATH)) is has


def test_a_certificate_is_of_this_machine_and_its_key_of_its_owner_alone(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.store)
    client = ssl.create_default_context(cafile=made.file)
    for name in ("localhost", "127.0.0.1"):
        shake_hands(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, "kafka.example")
    assert [path.stat().st_mode & 0o077 for path in (made.key_file, made.store)] == [0, 0]


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """In memory, without a connection."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here, there = client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
