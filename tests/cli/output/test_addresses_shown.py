"""An address of Redis may hold a password: no command puts it into a text as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fallow.cli.access import Access

COMMANDS = sorted(Path("fallow").rglob("*.py"))


@pytest.mark.parametrize("path", COMMANDS, ids=str)
def test_no_text_of_a_command_holds_the_address_of_redis_as_it_is(path: Path) -> None:
    texts = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.JoinedStr)]
    told = [part for text in texts for part in ast.walk(text) if isinstance(part, ast.Attribute)]
    passed_on = [part for text in texts for part in ast.walk(text) if isinstance(part, ast.Call)]
    masked = {id(each) for call in passed_on for each in ast.walk(call)}
    assert [part.lineno for part in told if part.attr == "redis_address" and id(part) not in masked] == []


def test_what_is_shown_of_an_address_of_redis_holds_no_password() -> None:
    access = Access(None, "redis://op:SECRETPW@redis:6379/0", "fallow", None)
    assert access.redis_shown == "redis://***@redis:6379/0"
