"""What a mutant takes out stands in the code, once, and so does the test that has to notice it: a change that moves
either moves the mutant along.
"""

from __future__ import annotations

import ast

import pytest

from fallow.faults.mutants import ROOT, Mutant, load_mutants

MUTANTS = load_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_takes_out_still_stands_in_the_code(mutant: Mutant) -> None:
    counts = [(ROOT / edit.file).read_text(encoding="utf-8").count(edit.old) for edit in mutant.edits]
    assert counts == [1] * len(mutant.edits)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.test], ids=lambda mutant: mutant.name)
def test_the_test_that_has_to_notice_a_mutant_still_exists(mutant: Mutant) -> None:
    file, _, name = mutant.test.partition("::")
    code = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = {node.name for node in ast.walk(code) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not name or name.partition("[")[0] in tests
