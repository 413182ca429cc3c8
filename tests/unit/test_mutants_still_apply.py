"""What a mutant takes out stands in the code, once: a change that moves it moves the mutant along."""

from __future__ import annotations

import pytest

from services.cli.mutants import ROOT, Mutant, load_mutants


@pytest.mark.parametrize("mutant", load_mutants(), ids=lambda mutant: mutant.name)
def test_what_a_mutant_takes_out_still_stands_in_the_code(mutant: Mutant) -> None:
    counts = [(ROOT / edit.file).read_text(encoding="utf-8").count(edit.old) for edit in mutant.edits]
    assert counts == [1] * len(mutant.edits)
