"""A server with the ACL file lets in the declared users with their rights and no others, and tells what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from fallow.shared.view.users import ADMIN
from tests.cli.test_commands import call
from tests.contract.guarded_redis import USERS, GuardedRedis, guarded_redis, password_of, written_passwords

NAMESPACE = "fallow"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path, NAMESPACE) as server:
        yield server


def test_the_file_shows_no_password(guarded: GuardedRedis) -> None:
    text = (guarded.folder / "users.acl").read_text()
    assert [user for user in USERS if password_of(user) in text] == []
    assert sorted(line.split()[1] for line in text.splitlines()) == sorted([*USERS, "default"])


def test_nobody_comes_in_without_a_password_or_with_a_wrong_one(guarded: GuardedRedis) -> None:
    with pytest.raises(AuthenticationError):
        guarded.redis().ping()
    for user in USERS:
        with pytest.raises(AuthenticationError):
            Redis.from_url(guarded.url(user, "another-word")).ping()


COMMANDS: dict[str, tuple[str, ...]] = {
    "read a key of the view": ("HGET", "fallow:c:meta", "version"),
    "write a key of the view": ("HSET", "fallow:c:meta", "version", "1"),
    "read a key beside it": ("HGET", "elsewhere:c:meta", "version"),
    "write a key beside it": ("HSET", "elsewhere:c:meta", "version", "1"),
    "load functions": ("FUNCTION", "LOAD", "REPLACE", "#!lua name=t\nredis.register_function('t', function() end)"),
    "run a script": ("EVAL", "return 1", "0"),
    "drop everything": ("FLUSHALL",),
    "list all keys": ("KEYS", "*"),
    "see the users": ("ACL", "LIST"),
    "make a user": ("ACL", "SETUSER", "another", "on", "nopass", "+@all"),
    "change settings": ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
    "stop the server": ("SHUTDOWN", "NOSAVE"),
}
MAY = {
    "projector": {"read a key of the view", "write a key of the view"},
    "reader": {"read a key of the view"},
    "loader": {"load functions"},
}


@pytest.mark.parametrize("user", MAY)
def test_each_user_may_do_what_is_its_own_and_nothing_else(guarded: GuardedRedis, user: str) -> None:
    redis = guarded.redis(user)
    assert {what for what, words in COMMANDS.items() if is_allowed(redis, words)} == MAY[user]


def is_allowed(redis: Any, words: tuple[str, ...]) -> bool:
    try:
        redis.execute_command(*words)
    except NoPermissionError:
        return False
    return True


def test_the_functions_are_loaded_by_their_own_user_and_users_checked_by_the_administrator(
    guarded: GuardedRedis,
) -> None:
    assert guarded.command("loader", "view", "load").returncode == 0
    assert guarded.command("loader", "view", "load", "--json").returncode == 0
    refused = guarded.command("reader", "view", "check")
    assert (refused.returncode, "pass-of" in refused.stderr) == (3, False)
    assert guarded.command(ADMIN, "view", "check").returncode == 0


def test_what_was_changed_by_hand_is_told(guarded: GuardedRedis) -> None:
    admin = guarded.redis(ADMIN)
    admin.execute_command("ACL", "SETUSER", "reader", "+flushall", "-hget")
    admin.execute_command("ACL", "SETUSER", "projector", "nopass")
    admin.execute_command("ACL", "SETUSER", "stranger", "on", ">long-enough-word", "~*", "+get")
    admin.execute_command("ACL", "SETUSER", "default", "on", "nopass", "+@all")
    admin.execute_command("ACL", "DELUSER", "loader")
    admin.execute_command("ACL", "SETUSER", ADMIN, "nopass")
    answer = guarded.command(ADMIN, "view", "check", "--json")
    assert answer.returncode == 1
    assert [row["text"] for row in json.loads(answer.stdout)["differences"]] == [
        "user projector needs no password",
        "missing: user reader has no +hget",
        "not declared: user reader has +flushall",
        "not declared: user reader has -hget",
        "missing: user loader",
        "user admin needs no password",
        "beside the declared ones: user default needs no password",
        "beside the declared ones: user stranger",
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (None, "must hold a file reader, with the password of that user"),
        ("", "must hold one line of at least 12 characters, without spaces around"),
        ("short\n", "must hold one line of at least 12 characters, without spaces around"),
        ("one-long-word\nanother-long-word\n", "must hold one line of at least 12 characters, without spaces around"),
        (" padded-long-word\n", "must hold one line of at least 12 characters, without spaces around"),
    ],
)
def test_what_is_no_password_is_refused(tmp_path: Path, text: str | None, rule: str) -> None:
    passwords = written_passwords(tmp_path / "passwords")
    if text is None:
        (passwords / "reader").unlink()
    else:
        (passwords / "reader").write_text(text)
    answer = call("view", "users", "--passwords", str(passwords))
    assert answer.returncode == 2
    assert rule in answer.stderr
