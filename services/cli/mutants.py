"""`fallow faults --mutants`: takes one defence at a time out of a copy of the code, and counts the worlds until
somebody notices. It is the proof that the checks can fail.

A mutant is a file of `tests/mutants`: what is taken out, and texts of the code with what stands there instead. The
code itself knows nothing of them. A text that does not stand there exactly once is an error: no mutant rots unseen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "tests" / "mutants"
PACKAGES = ("services", "shared")
SEEDS_MOST = 2_000
HUNT_S_MOST = 900
"""No hunt takes so long: a mutant that never comes to an end is not one that was caught."""


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
    """A defence, and how it is taken out."""

    name: str
    without: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of a mutant: caught in the world of that number by that invariant, or never (None)."""

    mutant: Mutant
    seeds: int
    invariant: str | None
    text: str


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
        edits = tuple(Edit(**edit) for edit in body["edit"])
        return Mutant(file.stem, body["without"], edits)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise MutantError(f"{file.name}: {error}") from error


def mutate(mutant: Mutant, root: Path) -> None:
    """Take the defence out of the code below `root`. Raises MutantError."""
    for edit in mutant.edits:
        path = root / edit.file
        if not path.is_file():
            raise MutantError(f"{mutant.name}: there is no {edit.file}")
        text = path.read_text(encoding="utf-8")
        count = text.count(edit.old)
        if count != 1:
            raise MutantError(f"{mutant.name}: its text stands {count} times in {edit.file}, must be once")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def hunt_all(
    mutants: Sequence[Mutant],
    note: Callable[[Hunt], None],
    *,
    first_seed: int = 0,
    seeds_most: int = SEEDS_MOST,
    jobs: int | None = None,
) -> list[Hunt]:
    """Hunt every mutant, several at a time, and note each as it ends. Raises MutantError."""
    with tempfile.TemporaryDirectory(prefix="fallow-mutants-") as folder:
        for mutant in mutants:
            _copy(mutant, Path(folder))

        def hunted(mutant: Mutant) -> Hunt:
            found = _hunt(mutant, Path(folder) / mutant.name, first_seed, seeds_most)
            note(found)
            return found

        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            return list(pool.map(hunted, mutants))


def _copy(mutant: Mutant, folder: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / mutant.name / package)
    mutate(mutant, folder / mutant.name)


def _hunt(mutant: Mutant, root: Path, first_seed: int, seeds_most: int) -> Hunt:
    command = [sys.executable, "-m", "services.cli.mutant_hunt", str(first_seed), str(seeds_most)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=HUNT_S_MOST, check=False
        )
    except subprocess.TimeoutExpired:
        return Hunt(mutant, seeds_most, None, f"the hunt did not end within {HUNT_S_MOST} s")
    if done.returncode:
        raise MutantError(f"{mutant.name}: the code does not run: {done.stderr.strip().splitlines()[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Hunt(mutant, answer["seeds"], answer["invariant"], answer["text"])


def summary(hunts: Iterable[Hunt]) -> dict[str, Any]:
    """All in one object."""
    found = list(hunts)
    caught = [hunt for hunt in found if hunt.invariant is not None]
    return {
        "mutants_total": len(found),
        "mutants_caught": len(caught),
        "missed": [hunt.mutant.name for hunt in found if hunt.invariant is None],
        "seeds_to_catch": {hunt.mutant.name: hunt.seeds for hunt in caught},
        "caught_by": {hunt.mutant.name: hunt.invariant for hunt in caught},
    }


def line_of(hunt: Hunt) -> str:
    """One line for people."""
    if hunt.invariant is None:
        return f"MISSED {hunt.mutant.name}: {hunt.text}"
    return f"caught {hunt.mutant.name} after {hunt.seeds} seeds by {hunt.invariant}: {hunt.text}"
