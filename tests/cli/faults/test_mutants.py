"""The mutants: each can still be made, keeps its types and runs; those that are quick to catch are caught, and a rotten
one is an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.faults.mutants import (
    ROOT,
    Edit,
    Hunt,
    Mutant,
    MutantError,
    chosen,
    copy_code,
    hunt_all,
    line_of,
    load_mutants,
    mutate,
    summary,
)
from tests.hypothesis_profile import today

MUTANTS = load_mutants()
TURNS = 14
ISSUED = 18
"""So many defences at least are taken out one by one."""


def by_name(name: str) -> Mutant:
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


def hunted(mutant: Mutant, seeds_max: int) -> Hunt:
    (hunt,) = hunt_all([mutant], lambda _: None, seeds_max=seeds_max)
    return hunt


def test_there_is_a_mutant_for_each_defence() -> None:
    assert len(MUTANTS) >= ISSUED
    assert len({mutant.without for mutant in MUTANTS}) == len(MUTANTS)


def texts_of(mutant: Mutant) -> dict[str, str]:
    """The files of a mutant as it changes them."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text(encoding="utf-8")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def tried_out(mutants: list[Mutant], root: Path) -> list[str]:
    """Why each of these does not run, or ""."""
    told = "".join(json.dumps(texts_of(mutant)) + "\n" for mutant in mutants)
    command = [sys.executable, str(ROOT / "tests" / "cli" / "faults" / "mutant_trial.py"), str(copy_code(root))]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True, cwd=root)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_mutants_are_imported_and_run_a_world(tmp_path: Path) -> None:
    """A part of them each day. Of all it is known by the test below that they can be made and keep their types."""
    some = MUTANTS[today() % TURNS :: TURNS]
    assert {m.name: why for m, why in zip(some, tried_out(some, tmp_path), strict=True) if why} == {}


def test_code_that_does_not_run_is_found_in_one_world(tmp_path: Path) -> None:
    fold, marks = "shared/cluster/fold/fold.py", "shared/cluster/capacity/constraints.py"
    broken = [
        Mutant("typo", "sense", (Edit(fold, "= judge(", "= judged("),)),
        Mutant("torn", "sense", (Edit(fold, "def judge(", "def judge("),)),
        Mutant("gone", "sense", (Edit(marks, "class Needs(", "class Need("),)),
        Mutant("nonsense", "sense", (Edit(marks, "class Needs(", "class class Needs("),)),
    ]
    errors = [why.strip().rpartition("\n")[2].partition(":")[0] for why in tried_out(broken, tmp_path)]
    assert ["NameError" in errors[0], *errors[1:]] == [True, "", "ImportError", "SyntaxError"]


FINE_IN_A_MUTANT = ("unreachable", "redundant-expr", "truthy-bool", "comparison-overlap")
"""What mypy may say of a rule that is taken out."""


def fits(mutant: Mutant, root: Path) -> bool:
    """Whether all that it takes out still stands there."""
    return all((root / edit.file).read_text(encoding="utf-8").count(edit.old) == 1 for edit in mutant.edits)


def type_errors(mutants: list[Mutant], root: Path) -> list[str]:
    """What mypy says of a tree from which as many of these are taken as go together, and of another for the rest."""
    copy_code(root, ("fallow", "services", "shared", "pyproject.toml"))
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", root / ".mypy_cache")
    left = list[Mutant]()
    for mutant in mutants:
        if fits(mutant, root):
            mutate(mutant, root)
        else:
            left.append(mutant)
    assert len(left) < len(mutants), f"the text of {left[0].name} does not stand in the code"
    command = [sys.executable, "-m", "mypy", "-p", "fallow"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    errors = [line for line in said if not line.endswith(tuple(f"[{code}]" for code in FINE_IN_A_MUTANT))]
    return errors + (type_errors(left, root / "rest") if left else [])


def test_every_mutant_keeps_its_types(tmp_path: Path) -> None:
    """What no world of the test above comes to is read all the same."""
    assert type_errors(MUTANTS, tmp_path / "code") == []


def test_a_mutant_of_the_wrong_type_is_found(tmp_path: Path) -> None:
    old = "        if taint not in spec.tolerations:\n"
    odd = Mutant(
        "odd", "sense", (Edit("shared/cluster/capacity/constraints.py", old, "        if node.spec.taints:\n"),)
    )
    (error,) = type_errors([odd], tmp_path / "code")
    assert '"NodeSpec" has no attribute "spec"' in error


def test_a_gang_that_starts_in_parts_is_noticed_in_the_first_worlds() -> None:
    hunt = hunted(by_name("gang_committed_worker_by_worker"), 20)
    assert hunt.invariant == "I3"
    assert line_of(hunt).startswith(f"caught gang_committed_worker_by_worker after {hunt.seeds} seeds by I3")


def test_code_from_which_nothing_is_taken_is_not_caught() -> None:
    hunt = hunted(Mutant("nothing", "nothing", ()), 5)
    assert hunt.invariant is None
    assert summary([hunt]) == {
        "mutants_total": 1,
        "mutants_caught": 0,
        "missed": ["nothing"],
        "no_time_for": [],
        "seeds_to_catch": {},
        "caught_by": {},
    }


def test_a_mutant_whose_text_is_gone_is_an_error(tmp_path: Path) -> None:
    rotten = Mutant("rotten", "what is not there", (Edit("shared/cluster/fold/fold.py", "no such text", ""),))
    with pytest.raises(MutantError, match=r"rotten: its text stands 0 times in shared/cluster/fold/fold\.py"):
        mutate(rotten, copy_code(tmp_path))


def test_a_mutant_of_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MutantError, match=r"rotten: there is no shared/gone\.py"):
        mutate(Mutant("rotten", "a file", (Edit("shared/gone.py", "", ""),)), tmp_path)


def test_code_that_does_not_run_is_an_error_and_not_a_catch() -> None:
    broken = Mutant("broken", "sense", (Edit("shared/cluster/fold/fold.py", "= judge(", "= judged("),))
    with pytest.raises(MutantError, match="broken: the code does not run: NameError"):
        hunted(broken, 1)


def test_a_file_that_is_no_mutant_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("without = 'edits'\n", encoding="utf-8")
    with pytest.raises(MutantError, match=r"odd\.toml: 'edit'"):
        load_mutants(tmp_path)


def test_some_are_hunted_by_name_and_each_day_another_one_comes_first() -> None:
    names = [mutant.name for mutant in chosen(MUTANTS, "", 3)]
    assert names == [mutant.name for mutant in (*MUTANTS[3:], *MUTANTS[:3])]
    assert [mutant.name for mutant in chosen(MUTANTS, "no_chain_check", 3)] == ["no_chain_check"]
    with pytest.raises(MutantError, match="odd: there is no such mutant"):
        chosen(MUTANTS, "odd", 0)


def test_a_mutant_for_which_there_was_no_time_was_not_missed() -> None:
    (hunt,) = hunt_all([by_name("no_chain_check")], lambda _: None, seconds=0)
    assert summary([hunt])["no_time_for"] == ["no_chain_check"]
    assert (summary([hunt])["mutants_total"], summary([hunt])["missed"]) == (0, [])
    assert line_of(hunt) == "no time for no_chain_check: there was no time left"


IN_ARRAYS = "tests/placement/requests/test_arrays.py"


def test_what_no_world_brings_into_play_is_caught_by_a_test_that_the_mutant_names() -> None:
    file = "shared/cluster/model/arrays.py"
    is_full = Edit(file, "return self.max_running is not None and", "return False and")
    left = Edit(file, "return max(0, self.max_running - self.holding - self.making_room)", "return None")
    test = f"{IN_ARRAYS}::test_no_more_of_its_elements_run_than_may"
    hunt = hunted(Mutant("many", "the limit", (is_full, left), test=test), 1)
    assert (hunt.seeds, hunt.invariant) == (0, "test_no_more_of_its_elements_run_than_may")
    assert line_of(hunt).startswith("caught many by test_no_more_of_its_elements_run_than_may: ")


def test_a_test_that_is_content_has_missed_the_mutant() -> None:
    test = f"{IN_ARRAYS}::test_no_more_of_its_elements_run_than_may"
    assert hunted(Mutant("nothing", "nothing", (), test=test), 1).invariant is None


def test_a_test_that_is_not_there_is_an_error() -> None:
    with pytest.raises(MutantError, match="nothing: the code does not run"):
        hunted(Mutant("nothing", "nothing", (), test=f"{IN_ARRAYS}::test_of_old"), 1)


def test_an_installed_program_has_no_mutants(tmp_path: Path) -> None:
    with pytest.raises(MutantError, match="part of the source tree"):
        load_mutants(tmp_path)
