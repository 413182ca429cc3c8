"""Nothing is written to the state outside the fold and its undo log, but what the state names as not of decisions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import NOT_OF_DECISIONS, CellState

TOP = Path(__file__).parents[3]
FOLD = "shared/cluster/fold/"
FIELDS = {field.name for field in fields(CellState)}
STATES = ("state", "_state")
THINGS = {"job": {field.name for field in fields(Job)}, "node": {field.name for field in fields(Node)}}
ALSO = {
    "shared/cluster/model/dependencies.py": "The fold calls it on a job that it has just made.",
    "shared/cluster/model/job.py": "`resume` is what an entry of the undo log calls; `index` follows from the workers.",
    "shared/cluster/model/unacknowledged.py": "An index of the fold, which leaves its own entries in the undo log.",
    "shared/cluster/quota/kept_places.py": "Kept places count as in use for one search, and are put back at its end.",
    "services/placement/search/beside_kept.py": "It makes a second state of its own, and never writes to the cell's.",
    "shared/log/release.py": "It makes a state of its own to check the chain of a log.",
}
"""What else writes to a state, and why nothing is left of it that would have to be undone."""

CHANGES = {"add", "append", "clear", "discard", "extend", "pop", "popitem", "remove", "setdefault", "update"}


def path_of(target: ast.expr, aliases: dict[str, str]) -> str | None:
    """Which part of the state this is, such as `jobs` or `tree.kept`; None where it is none."""
    match target:
        case ast.Subscript(value=inner):
            return path_of(inner, aliases)
        case ast.Name(id=name):
            return aliases.get(name)
        case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=part) if name in STATES:
            return part if part in FIELDS else None
        case ast.Attribute(value=ast.Name(id=name), attr=part) if part in THINGS.get(name, ()):
            return f"{name}.{part}"
        case ast.Attribute(value=inner, attr=part):
            outer = path_of(inner, aliases)
            return None if outer is None else f"{outer}.{part}"
    return None


def single(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        yield from single(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]


def aliases_in(function: ast.AST) -> dict[str, str]:
    """The names that a function gives to tables of the state."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                part = path_of(value, {})
                if part is not None:
                    found[name] = part
    return found


def written(function: ast.AST) -> Iterator[str]:
    """Each part of the state that a function writes."""
    aliases = aliases_in(function)
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                found = [*single(targets)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                found = [target]
            case ast.Call(func=ast.Attribute(value=ast.expr() as target, attr=change)) if change in CHANGES:
                part = path_of(target, aliases)
                found = [target] if part is not None else []
            case _:
                continue
        is_call = isinstance(node, ast.Call)
        for target in found:
            part = None if isinstance(target, ast.Name) and not is_call else path_of(target, aliases)
            if part is not None:
                yield part


def functions(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("state.waiting += 1", ["waiting"]),
        ("self._state.jobs[job] = 1", ["jobs"]),
        ("del self.state.jobs[job]", ["jobs"]),
        ("state.offset, other = 1, 2", ["offset"]),
        ("state.tree.kept = nothing", ["tree.kept"]),
        ("state.heads.pop(job)", ["heads"]),
        ("state.waiting_of.setdefault(tenant, []).append(1)", ["waiting_of"]),
        ("jobs = state.jobs\njobs[3] = 4\njobs.clear()", ["jobs", "jobs"]),
        ("job.status = other\nnode.held -= 1", ["job.status", "node.held"]),
        ("jobs = state.jobs\nread(jobs[3])\nfound.pop(3)\nother.jobs = 3", []),
    ],
)
def test_what_counts_as_written_to_the_state(text: str, parts: list[str]) -> None:
    assert [*written(ast.parse(text))] == parts


@cache
def writers() -> dict[str, set[str]]:
    """Which parts of a state each file writes."""
    found: dict[str, set[str]] = {}
    for path in sorted(each for top in ("services", "shared") for each in (TOP / top).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {part for function in functions(tree) for part in written(function)}
        if parts:
            found[path.relative_to(TOP).as_posix()] = parts
    return found


def is_of_decisions(part: str) -> bool:
    return not any(part == each or part.startswith(f"{each}.") for each in NOT_OF_DECISIONS)


def test_only_the_fold_writes_what_decisions_make_of_the_state() -> None:
    """So a decision that is not in force is undone whole, and a state that is read anew is that of its writer."""
    found = {file for file, parts in writers().items() if any(is_of_decisions(part) for part in parts)}
    assert sorted(file for file in found if not file.startswith(FOLD) and file not in ALSO) == []


def test_no_exception_outlives_what_it_was_made_for() -> None:
    parts = {part for found in writers().values() for part in found}
    assert [part for part in NOT_OF_DECISIONS if not any(f"{each}.".startswith(f"{part}.") for each in parts)] == []
    assert [file for file in ALSO if not any(is_of_decisions(part) for part in writers().get(file, ()))] == []
