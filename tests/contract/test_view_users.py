"""A server with the ACL file lets in the declared users with their rights and no others, and tells what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from fallow.shared.view.access.users import ADMIN
from fallow.shared.view.library import library_digest
from tests.cli.usage.test_commands import call
from tests.contract.worlds.guarded_redis import USERS, GuardedRedis, guarded_redis, password_of, written_passwords

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
    "see the functions": ("FUNCTION", "LIST"),
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
    "loader": {"load functions", "see the functions"},
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
        "missing: library fallow_5 (`fallow view load` puts it there)",
    ]


FORGED = """#!lua name=fallow_5
local function read(name, callback)
  redis.register_function({ function_name = name, callback = callback, flags = { 'no-writes' } })
end
read('fallow_digest_5', function() return 'DIGEST' end)
read('fallow_read_cursor_5', function() return { 'NONE' } end)
redis.register_function('fallow_apply_5', function(keys, args) return { 'OK', args[2] } end)
"""


def test_functions_that_pose_as_the_declared_ones_are_told_and_replaced(guarded: GuardedRedis) -> None:
    guarded.redis("loader").execute_command("FUNCTION", "LOAD", FORGED.replace("DIGEST", library_digest()))
    assert guarded.redis("reader").execute_command("FCALL_RO", "fallow_digest_5", 0) == library_digest()
    found = guarded.command(ADMIN, "view", "check", "--json")
    assert found.returncode == 1
    [row] = json.loads(found.stdout)["differences"]
    assert (row["user"], row["text"].partition(":")[0]) == (None, "library fallow_5 is not that of this release")
    assert guarded.command("loader", "view", "load").returncode == 0
    assert guarded.command(ADMIN, "view", "check").returncode == 0


def test_one_who_may_not_see_the_functions_goes_by_their_own_word(guarded: GuardedRedis) -> None:
    assert guarded.command("loader", "view", "load").returncode == 0
    assert guarded.command("projector", "view", "load").returncode == 0


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
