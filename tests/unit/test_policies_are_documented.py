"""Every placement policy stands where people choose one: in the cell file's comment and in docs/placement.md."""

from __future__ import annotations

import re
from pathlib import Path

from fallow.services.placement.policy.policies import POLICIES, PlacementPolicy
from fallow.shared.cluster.model.config import PLACEMENTS

TOP = Path(__file__).parents[2]


def test_a_cell_file_may_name_each_policy_and_no_other() -> None:
    assert set(PLACEMENTS) == set(POLICIES)


def test_the_cell_files_comment_names_every_policy() -> None:
    text = (TOP / "deploy" / "cell.yaml").read_text(encoding="utf-8")
    (comment,) = re.findall(r"^ +placement: .*# which nodes a gang gets: (.*) \(e-spread\)$", text, re.MULTILINE)
    assert set(re.split(r", | or ", comment)) == set(POLICIES)


def test_the_guide_says_of_every_policy_when_to_use_it() -> None:
    text = (
        (TOP / "docs" / "placement.md")
        .read_text(encoding="utf-8")
        .partition("## Which policy")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(POLICIES)


def test_the_guide_to_adding_a_policy_names_every_field() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.partition("## Add a policy")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == sorted(PlacementPolicy._fields)
