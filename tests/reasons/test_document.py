"""The page about codes has every code of every list, and no other; and tells their kinds in the order of precedence."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from fallow.cli.log.why import DEFERRED
from fallow.services.placement.search.reason_precedence import PRECEDENCE
from fallow.shared.events import reasons
from fallow.shared.events.reasons import PendingReason

PAGE = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text(encoding="utf-8")
LISTS = [each for each in vars(reasons).values() if isinstance(each, type) and each.__module__ == reasons.__name__]


def section(title: str) -> str:
    """What stands below a heading of the page."""
    return PAGE.split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("codes", LISTS, ids=lambda codes: codes.__name__)
def test_the_page_has_each_code_once(codes: type[StrEnum]) -> None:
    told = re.findall(r"^\| `(\w+)` \|", section(f"{codes.__name__}: "), re.MULTILINE)
    assert sorted(told) == sorted(codes)


def test_the_page_tells_the_kinds_of_reasons_to_wait_as_they_are_judged() -> None:
    rows = re.findall(r"^\| (\w+) \| (`.*) \|$", section("Which reason comes first"), re.MULTILINE)
    told = [(code, kind) for kind, codes in rows for code in re.findall(r"`(\w+)`", codes)]
    assert told == [(code.value, kind.value) for code, kind in PRECEDENCE.items()]


def test_every_reason_to_wait_has_words() -> None:
    assert set(DEFERRED) == set(PendingReason) == set(PRECEDENCE)
