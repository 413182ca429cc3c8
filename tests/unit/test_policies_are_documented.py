"""Every placement policy stands where people choose one: in what a cell file may name, in the comment of the shipped
cell file, and in docs/placement.md. What is missing is told as the line to write.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.services.placement.policy.policies import POLICIES, PolicyError, by_name
from fallow.shared.cluster.model.config import PLACEMENTS
from fallow.shared.events.operations import CellPolicy

TOP = Path(__file__).parents[2]
CELL_FILE = "deploy/cell.yaml"
GUIDE = "docs/placement.md"


def test_a_cell_file_may_name_each_policy_and_no_other() -> None:
    known = [name for name in PLACEMENTS if name in POLICIES]
    names = ", ".join(f'"{name}"' for name in (*known, *sorted(POLICIES.keys() - known)))
    assert set(PLACEMENTS) == set(POLICIES), f"write in shared/cluster/model/config.py: PLACEMENTS = ({names})"


def test_the_cell_files_comment_names_every_policy() -> None:
    text = (TOP / CELL_FILE).read_text(encoding="utf-8")
    (line,) = re.findall(r"^( +placement: .*# which nodes a gang gets: .*)$", text, re.MULTILINE)
    before, _, comment = line.partition(" which nodes a gang gets: ")
    *named, last = re.split(r", | or ", comment.removesuffix(f" ({CellPolicy().placement})"))
    told = [name for name in (*named, last) if name in POLICIES]
    names = told[:-1] + sorted(POLICIES.keys() - told) + told[-1:]
    choice = f"{', '.join(names[:-1])} or {names[-1]} ({CellPolicy().placement})"
    wanted = f"{before} which nodes a gang gets: {choice}"
    assert line == wanted, f"write in {CELL_FILE}: {wanted.strip()}"


def test_the_guide_says_of_every_policy_when_to_use_it() -> None:
    text = (TOP / GUIDE).read_text(encoding="utf-8").partition("## Which policy")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))
    missing = [
        f"| `{name}` | (what it does) | {policy.what_for} |"
        for name, policy in POLICIES.items()
        if rows.get(name) != policy.what_for
    ]
    assert missing == [], f"write in {GUIDE}, under 'Which policy': {missing}"
    assert sorted(rows) == sorted(POLICIES), f"{GUIDE} tells of policies that there are not"


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
