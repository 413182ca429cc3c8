"""What is told of Redis's users, from the lines of its ACL alone."""

from __future__ import annotations

import pytest

from fallow.shared.view.access.users import acl_file, user_differences

PASSWORDS = {name: f"pass-of-{name}" for name in ("admin", "projector", "reader", "loader")}
LINES = acl_file("fallow", PASSWORDS).splitlines()


def told(lines: list[str]) -> list[str]:
    return [difference.text for difference in user_differences("fallow", lines)]


def with_line(name: str, old: str, new: str) -> list[str]:
    changed = [line.replace(old, new) if line.startswith(f"user {name} ") else line for line in LINES]
    assert changed != LINES
    return changed


def test_a_server_with_the_file_has_no_differences() -> None:
    assert told(LINES) == []


def test_the_default_user_of_the_file_is_off_and_has_no_right() -> None:
    assert LINES[0].split()[:3] == ["user", "default", "off"]
    assert LINES[0].endswith("-@all")


def test_a_user_that_is_switched_off_is_told() -> None:
    assert told(with_line("reader", " on ", " off ")) == ["user reader is switched off"]


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_user_without_a_password_is_told(name: str) -> None:
    assert told(with_line(name, " on ", " on nopass ")) == [f"user {name} needs no password"]


@pytest.mark.parametrize("name", ["projector", "reader", "loader"])
def test_a_user_that_is_missing_is_told(name: str) -> None:
    assert told([line for line in LINES if not line.startswith(f"user {name} ")]) == [f"missing: user {name}"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("user stranger on #ab ~* +get", ["beside the declared ones: user stranger"]),
        ("user stranger on nopass ~* +get", ["beside the declared ones: user stranger needs no password"]),
        ("user stranger off nopass ~* +get", []),
        ("user stranger on nopass ~* -@all", []),
    ],
)
def test_a_user_that_nobody_declared_is_told_where_it_may_do_anything(line: str, text: list[str]) -> None:
    assert told([*LINES, line]) == text
