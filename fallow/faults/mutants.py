"""`fallow faults --mutants`: takes one defence at a time out of a copy of the code, and counts the worlds until
a check fails. It is the proof that the checks can fail.

A mutant is a file of `tests/mutants`: what is taken out, and texts of the code with what stands there instead. The
code itself does not know them. A text that does not stand there exactly once is an error: no mutant rots unseen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "tests" / "mutants"
PACKAGES = ("fallow", "services", "shared", "deploy")
"""What a world runs; in `deploy` are the topics' settings, which services read."""

TESTED = (*PACKAGES, "tests", "docs", "examples", "pyproject.toml", "README.md")
"""What a test may read of the source tree."""

SEEDS_MAX = 2_000
HUNT_S_MAX = 900
"""No hunt takes so long. Which worlds catch a mutant depends on the code alone, never on the time that they take: one
whose time is over was neither caught nor missed.
"""

BROKEN_CODE = ("NameError", "AttributeError", "TypeError", "ImportError", "SyntaxError", "UnboundLocalError")
"""What a mutant raises that does not take a defence out, but breaks the code."""

_BROKEN = re.compile(rf"\b(?:{'|'.join(BROKEN_CODE)}):")


class MutantError(ValueError):
    """A mutant that cannot be made: its file, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of one file, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defence, and how it is taken out. `faults`: the kinds that may happen in its worlds, all where none is named.
    `test`: the test that has to fail, for a defence that no world can bring into play, or seldom. `seed`: the world in
    which it was caught last, which is looked at first; another one may do it after the next change of the code.
    """

    name: str
    without: str
    edits: tuple[Edit, ...]
    faults: str = ""
    test: str = ""
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of a mutant: caught in the world of that number by that invariant (0: by that test), or never (None).
    `is_over`: the hunt came to its end; else there was no time left for it.
    """

    mutant: Mutant
    seeds: int
    invariant: str | None
    text: str
    is_over: bool = True


def load_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, by name. Raises MutantError."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise MutantError(
            f"{folder}: there are no mutants; they are part of the source tree, not of an installed Fallow"
        )
    return [_load(file) for file in files]


def _load(file: Path) -> Mutant:
    try:
        body = tomllib.loads(file.read_text(encoding="utf-8"))
        edits = tuple(Edit(**edit) for edit in body.pop("edit"))
        return Mutant(file.stem, edits=edits, **body)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise MutantError(f"{file.name}: {error}") from error


def chosen(mutants: Sequence[Mutant], names: str, begin_with: int) -> list[Mutant]:
    """Those of these names (all if none), turned so that the one of that number is the first. Raises MutantError."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [mutant.name for mutant in mutants]
    for name in wanted:
        if name not in known:
            raise MutantError(f"{name}: there is no such mutant")
    found = [mutant for mutant in mutants if not wanted or mutant.name in wanted]
    begin = begin_with % len(found)
    return found[begin:] + found[:begin]


def mutate(mutant: Mutant, root: Path) -> None:
    """Take the defence out of the code below `root`. Raises MutantError."""
    for edit in mutant.edits:
        path = root / edit.file
        text = _text_of(mutant, edit, path)
        path.unlink()  # the copy may share the file with its original
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _text_of(mutant: Mutant, edit: Edit, path: Path) -> str:
    if not path.is_file():
        raise MutantError(f"{mutant.name}: there is no {edit.file}")
    text = path.read_text(encoding="utf-8")
    count = text.count(edit.old)
    if count != 1:
        raise MutantError(f"{mutant.name}: its text stands {count} times in {edit.file}, must be once")
    return text


def copy_code(folder: Path, names: Iterable[str] = PACKAGES) -> Path:
    """The source tree once more, in next to no time: files are shared with it until a mutant replaces them."""
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, copy_function=_link, symlinks=True)
        elif (ROOT / name).exists():
            _link(str(ROOT / name), str(folder / name))
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def hunt_all(
    mutants: Sequence[Mutant],
    note: Callable[[Hunt], None],
    *,
    first_seed: int = 0,
    seeds_max: int = SEEDS_MAX,
    jobs: int | None = None,
    seconds: float | None = None,
) -> list[Hunt]:
    """Hunt every mutant, several at a time, and note each as it ends; within so many seconds, if any are given. Raises
    MutantError.
    """
    for mutant in mutants:
        for edit in mutant.edits:
            _text_of(mutant, edit, ROOT / edit.file)
    end_s = None if seconds is None else monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fallow-mutants-") as folder:

        def hunted(mutant: Mutant) -> Hunt:
            left_s = HUNT_S_MAX if end_s is None else min(HUNT_S_MAX, end_s - monotonic())
            if left_s <= 0:
                return Hunt(mutant, 0, None, "there was no time left", is_over=False)
            found = _hunt_in(mutant, Path(folder) / mutant.name, first_seed, seeds_max, left_s)
            note(found)
            return found

        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            return list(pool.map(hunted, mutants))


def _hunt_in(mutant: Mutant, root: Path, first_seed: int, seeds_max: int, left_s: float) -> Hunt:
    root.mkdir()
    mutate(mutant, copy_code(root, TESTED if mutant.test else PACKAGES))
    if mutant.test:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test]
    else:
        numbers = (str(first_seed), str(seeds_max))
        command = [sys.executable, "-m", "fallow.faults.mutant_hunt", *numbers, mutant.faults]
        command += [] if mutant.seed is None else [str(mutant.seed)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=left_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Hunt(mutant, seeds_max, None, f"the hunt did not end within {left_s:.0f} s", is_over=False)
    finally:
        shutil.rmtree(root)
    return _of_test(mutant, done) if mutant.test else _of_worlds(mutant, done)


def _of_worlds(mutant: Mutant, done: subprocess.CompletedProcess[str]) -> Hunt:
    if done.returncode:
        raise MutantError(f"{mutant.name}: the code does not run: {done.stderr.strip().splitlines()[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["invariant"] is not None and _breaks_by_itself(answer["seed"], mutant.faults):
        text = f"seed {answer['seed']} breaks a promise with nothing taken out, too: {answer['text']}"
        return Hunt(mutant, answer["seeds"], None, text)
    return Hunt(mutant, answer["seeds"], answer["invariant"], answer["text"])


def _breaks_by_itself(seed: int, faults: str) -> bool:
    """Whether this world breaks a promise of the code as it is: then it cannot judge a mutant."""
    command = [sys.executable, "-m", "fallow.faults.mutant_hunt", str(seed), "1", faults]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["invariant"] is not None


def _of_test(mutant: Mutant, done: subprocess.CompletedProcess[str]) -> Hunt:
    """Pytest ends with 0 where all went well, and with 1 where a test failed."""
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0:
        return Hunt(mutant, 0, None, f"{mutant.test} is content")
    why = next((line for line in lines if line.startswith("E  ")), lines[-1] if lines else done.stderr.strip())
    if done.returncode != 1 or is_broken(why):
        raise MutantError(f"{mutant.name}: the code does not run: {why}")
    return Hunt(mutant, 0, mutant.test.rpartition("::")[2], why.removeprefix("E").strip())


def is_broken(text: str) -> bool:
    """Whether this is told of code that does not run, and not of a defence that is missing."""
    return _BROKEN.search(text) is not None


def summary(hunts: Iterable[Hunt]) -> dict[str, Any]:
    """All in one object."""
    found = list(hunts)
    over = [hunt for hunt in found if hunt.is_over]
    caught = [hunt for hunt in over if hunt.invariant is not None]
    return {
        "mutants_total": len(over),
        "mutants_caught": len(caught),
        "missed": [hunt.mutant.name for hunt in over if hunt.invariant is None],
        "no_time_for": [hunt.mutant.name for hunt in found if not hunt.is_over],
        "seeds_to_catch": {hunt.mutant.name: hunt.seeds for hunt in caught},
        "caught_by": {hunt.mutant.name: hunt.invariant for hunt in caught},
    }


def line_of(hunt: Hunt) -> str:
    """One line for people."""
    if not hunt.is_over:
        return f"no time for {hunt.mutant.name}: {hunt.text}"
    if hunt.invariant is None:
        return f"MISSED {hunt.mutant.name}: {hunt.text}"
    after = f" after {hunt.seeds} seeds" if hunt.seeds else ""
    return f"caught {hunt.mutant.name}{after} by {hunt.invariant}: {hunt.text}"
