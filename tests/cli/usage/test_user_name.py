"""The name of the user for the audit trail, where the system knows one."""

from __future__ import annotations

import os

import pytest

from fallow.cli.arguments.user_name import user_name
from fallow.cli.node.operate import operation
from fallow.shared.events.operations import Uncordon

UNKNOWN_UID = 2_000_000_011
VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def make_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is a number that the system has no name for, as in a container that runs as one."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN_UID)


def test_a_user_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert user_name() == "ada"


def test_a_user_that_has_no_name_is_called_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_nameless(monkeypatch)
    assert user_name() == ""


def test_a_name_that_is_no_text_can_be_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", os.fsdecode(b"ad\xff"))
    assert user_name() == "ad?"


def test_a_name_that_a_terminal_would_obey_is_one_that_a_command_can_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ad\x1b[2J\n")
    assert user_name() == "ad?[2J?"
    assert operation(Uncordon, cell="main", node="n").by == "ad?[2J?"
