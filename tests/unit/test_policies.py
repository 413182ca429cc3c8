"""The guide tells every field of a placement policy; and the registry has one order, and one policy of a name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.services.placement.policy.policies import POLICIES, PolicyError, by_name

TOP = Path(__file__).parents[2]


def test_the_guide_to_adding_a_policy_names_every_field() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.partition("## Add a policy")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == sorted(PlacementPolicy._fields)


def test_in_which_order_the_modules_of_policies_are_found_decides_nothing() -> None:
    policy = POLICIES["best-fit"]
    found = [(name, policy._replace(name=name)) for name in ("zeta", "e-spread", "alpha", "best-fit")]
    assert [*by_name(found)] == [*by_name(found[::-1])] == ["best-fit", "e-spread", "alpha", "zeta"]


def test_two_policies_of_one_name_are_told_with_their_modules() -> None:
    policy = POLICIES["best-fit"]
    with pytest.raises(PolicyError, match=r"policy 'best-fit' stands in both a\.one and a\.two"):
        by_name([("a.two", policy), ("a.one", policy)])
