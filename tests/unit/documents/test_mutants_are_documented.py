"""docs/reliability.md names every mutant, and none that is not there."""

from __future__ import annotations

import re

from fallow.faults.mutants import ROOT, load_mutants
from fallow.simulator.trouble.faults import Fault

MUTANTS = [mutant.name for mutant in load_mutants()]


def test_every_mutant_is_listed_where_its_promise_is() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").partition("## 4.")[2].partition("## 5.")[0]
    assert [name for name in MUTANTS if not re.search(rf"\b{name}\b", text)] == []


def test_the_kinds_of_faults_and_the_mutants_are_counted() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert re.findall(r"\b(\d+) kinds of faults\s+happen in each world", text) == [str(len(Fault))]
    (tens,) = re.findall(r"Each of the more than (\d+) mutants takes", text)
    assert int(tens) == len(MUTANTS) // 10 * 10
