"""What CONTRIBUTING.md names stands in the file that it names; and code goes by the kind of a reason, as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.placement.policy.deferral import PRECEDENCE, ReasonKind, is_of_quota
from services.placement.policy.policies import POLICIES, PlacementPolicy
from shared.events.reasons import DeferCode

TOP = Path(__file__).parents[2]
POLICY = TOP / "services" / "placement" / "policy"


def named() -> Iterator[tuple[str, str]]:
    """Each name with the file behind it in brackets."""
    text = " ".join((TOP / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    yield from re.findall(r"`([A-Za-z_][\w.]*)` \(`([\w/]+\.py)`", text)


@pytest.mark.parametrize(("name", "file"), sorted(dict.fromkeys(named())))
def test_a_name_of_the_guide_stands_in_its_file(name: str, file: str) -> None:
    whole = TOP / file
    places = (
        [whole]
        if whole.exists()
        else [path for part in ("services", "shared", "tests") for path in (TOP / part).rglob(file)]
    )
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    assert any(word.search(path.read_text(encoding="utf-8")) for path in places)


def test_whether_a_quota_keeps_a_job_off_goes_by_the_kind_of_the_reason() -> None:
    """Another reason of the kind counts wherever the first one does."""
    assert [code for code in DeferCode if is_of_quota(code)] == [
        code for code in DeferCode if PRECEDENCE[code] is ReasonKind.QUOTA
    ]
    compared = re.compile(r"is (not )?DeferCode\.QUOTA_REACHED")
    assert [path.name for path in POLICY.rglob("*.py") if compared.search(path.read_text(encoding="utf-8"))] == []


def test_a_policy_that_says_nothing_of_what_it_learns_is_not_asked_on_other_nodes_than_the_cells() -> None:
    policy = POLICIES["first-fit"]
    assert PlacementPolicy(policy.gang, policy.alone).learns
