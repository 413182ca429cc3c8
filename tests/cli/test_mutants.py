"""The mutants: each can still be made, those that are quick to catch are caught, and a rotten one is an error."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from services.cli.mutants import (
    PACKAGES,
    ROOT,
    Edit,
    Hunt,
    Mutant,
    MutantError,
    hunt_all,
    line_of,
    load_mutants,
    mutate,
    summary,
)

MUTANTS = load_mutants()
ISSUED = 18
"""So many defences at least are taken out one by one."""


def by_name(name: str) -> Mutant:
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


def hunted(mutant: Mutant, seeds_most: int) -> Hunt:
    (hunt,) = hunt_all([mutant], lambda _: None, seeds_most=seeds_most)
    return hunt


def copy_of_the_code(folder: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_there_is_a_mutant_for_each_defence() -> None:
    assert len(MUTANTS) >= ISSUED
    assert len({mutant.without for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_takes_out_still_stands_in_the_code(mutant: Mutant) -> None:
    counts = [(ROOT / edit.file).read_text(encoding="utf-8").count(edit.old) for edit in mutant.edits]
    assert counts == [1] * len(mutant.edits)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_program_that_can_be_read(mutant: Mutant, tmp_path: Path) -> None:
    for edit in mutant.edits:
        (tmp_path / edit.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / edit.file, tmp_path / edit.file)
    mutate(mutant, tmp_path)
    texts = [(tmp_path / edit.file).read_text(encoding="utf-8") for edit in mutant.edits if edit.file.endswith(".py")]
    assert all(ast.parse(text).body for text in texts)


def test_a_gang_that_starts_in_parts_is_noticed_in_the_first_world() -> None:
    hunt = hunted(by_name("gang_committed_worker_by_worker"), 3)
    assert hunt.invariant == "I3"
    assert line_of(hunt).startswith("caught gang_committed_worker_by_worker after 1 seeds by I3")


def test_code_from_which_nothing_is_taken_is_not_caught() -> None:
    hunt = hunted(Mutant("nothing", "nothing", ()), 5)
    assert hunt.invariant is None
    assert summary([hunt]) == {
        "mutants_total": 1,
        "mutants_caught": 0,
        "missed": ["nothing"],
        "seeds_to_catch": {},
        "caught_by": {},
    }


def test_a_mutant_whose_text_is_gone_is_an_error(tmp_path: Path) -> None:
    rotten = Mutant("rotten", "what is not there", (Edit("shared/cluster/fold.py", "no such text", ""),))
    with pytest.raises(MutantError, match=r"rotten: its text stands 0 times in shared/cluster/fold\.py"):
        mutate(rotten, copy_of_the_code(tmp_path))


def test_a_mutant_of_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MutantError, match=r"rotten: there is no shared/gone\.py"):
        mutate(Mutant("rotten", "a file", (Edit("shared/gone.py", "", ""),)), tmp_path)


def test_code_that_does_not_run_is_an_error_and_not_a_catch() -> None:
    broken = Mutant("broken", "sense", (Edit("shared/cluster/fold.py", "def judge(", "def judged("),))
    with pytest.raises(MutantError, match="broken: the code does not run: NameError"):
        hunted(broken, 1)


def test_a_file_that_is_no_mutant_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("without = 'edits'\n", encoding="utf-8")
    with pytest.raises(MutantError, match=r"odd\.toml: 'edit'"):
        load_mutants(tmp_path)


def test_an_installed_program_has_no_mutants(tmp_path: Path) -> None:
    with pytest.raises(MutantError, match="part of the source tree"):
        load_mutants(tmp_path)
