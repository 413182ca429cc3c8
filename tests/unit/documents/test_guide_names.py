"""What CONTRIBUTING.md names stands in the file that it names; and code goes by the kind of a reason, as it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.search.reason_precedence import PRECEDENCE, ReasonKind, is_of_quota
from fallow.shared.events import effects, reasons
from fallow.shared.events.reasons import PendingReason

TOP = Path(__file__).parents[3]
POLICY = TOP / "services" / "placement" / "policy"


def named() -> Iterator[tuple[str, str]]:
    """Each name with the file behind it in brackets."""
    text = " ".join((TOP / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    yield from re.findall(r"`([A-Za-z_][\w.]*)` \(`([\w/]+\.py)`", text)


@pytest.mark.parametrize(("name", "file"), sorted(dict.fromkeys(named())))
def test_a_name_of_the_guide_stands_in_its_file(name: str, file: str) -> None:
    whole = TOP / file
    places = (
        [whole]
        if whole.exists()
        else [path for part in ("fallow", "services", "shared", "tests") for path in (TOP / part).rglob(file)]
    )
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    assert any(word.search(path.read_text(encoding="utf-8")) for path in places)


def part_of(heading: str) -> str:
    """What the guide says under this heading, in one line."""
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return " ".join(text.partition(f"## {heading}\n")[2].partition("\n## ")[0].split())


def goes_by_fail_reason() -> Iterator[tuple[str, str]]:
    """Each function of the production code that asks for one reason of failure: its file and its name."""
    for path in chain.from_iterable((TOP / top).rglob("*.py") for top in ("fallow", "services", "shared")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Compare) and "FailReason." in ast.unparse(each) for each in ast.walk(node)
            ):
                yield path.relative_to(TOP).as_posix(), node.name


def test_the_guide_to_adding_a_reason_names_the_schemas_and_who_goes_by_a_reason_of_failure() -> None:
    part, asks = part_of("Add a reason"), [*goes_by_fail_reason()]
    assert "`python -m fallow.shared.events.asyncapi` writes `deploy/asyncapi.yaml`" in part
    assert asks
    assert [name for file, name in asks if f"`{name}` (`{file}`)" not in part] == []


def test_the_guide_to_adding_a_policy_tells_what_an_order_yields_and_how_another_hash_seed_is_run() -> None:
    part = part_of("Add a policy")
    assert "`Order` (`services/placement/fit/filling.py`)" in part
    assert "bit mask: bit `i` stands for the node `pool.ids[i]`" in part
    assert "`in_a_process_with` (`tests/placement/properties/test_determinism.py`)" in part


@pytest.mark.parametrize("heading", ["Add a reason", "Add a policy"])
def test_the_guide_tells_that_what_keeps_a_job_from_starting_stands_in_the_key_by_which_jobs_count_as_alike(
    heading: str,
) -> None:
    assert "`room_of` (`services/placement/queue/lines/classes.py`)" in part_of(heading)


EFFECTS = {name for name, kind in vars(effects).items() if isinstance(kind, type) and issubclass(kind, effects.Effect)}
CODES = {name: kind for name, kind in vars(reasons).items() if isinstance(kind, type) and issubclass(kind, StrEnum)}
WORDS = {
    code.value for name, kind in CODES.items() if name in {"PendingReason", "RejectCode", "RefuseCode"} for code in kind
}


def is_named(node: ast.AST | None) -> bool:
    """Whether this is an effect or a reason's code."""
    match node:
        case ast.Attribute(value=ast.Name(id=of), attr=name):
            return name in EFFECTS or of in CODES
        case ast.Name(id=name):
            return name in EFFECTS
    return False


def is_word(node: ast.AST | None) -> bool:
    """Whether this is the word of a code; other things have such words, too."""
    return isinstance(node, ast.Constant) and node.value in WORDS


def names_some(value: ast.expr) -> bool:
    """Whether a list, set or dict of two or more stands in it and names an effect or a code."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            found: list[ast.expr | None] = [*parts]
        case ast.Dict(keys=keys, values=values):
            found = [*keys, *values] if len(keys) > 1 else []
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            found = [left, right]
        case _:
            found = []
    if len(found) > 1 and (any(is_named(part) for part in found) or sum(is_word(part) for part in found) > 1):
        return True
    parts_of = [] if isinstance(value, ast.Subscript) else ast.iter_child_nodes(value)
    return any(names_some(part) for part in parts_of if isinstance(part, ast.expr))


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What a module, a class or an object has, by its name."""
    for body in (tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    yield name, value
    for part in ast.walk(tree):
        match part:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr() as value):
                yield name, value


def tables() -> Iterator[tuple[str, str]]:
    """Each such table of the production code: its file and its name."""
    for path in sorted(chain.from_iterable((TOP / top).rglob("*.py") for top in ("fallow", "services", "shared"))):
        for name, value in assigned(ast.parse(path.read_text(encoding="utf-8"))):
            if names_some(value):
                yield path.relative_to(TOP).as_posix(), name


def asked_for(function: ast.AST) -> set[str]:
    """The effects for which a function asks by `isinstance`, in the cases of a `match`, or by comparing a kind with
    them; also one within it.
    """
    found: list[ast.AST] = []
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                found += ast.walk(kinds)
            case ast.MatchClass(cls=kind) | ast.MatchValue(value=kind):
                found.append(kind)
            case ast.Compare(left=left, comparators=others):
                for side in (left, *others):
                    found += side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return {ast.unparse(each).rpartition(".")[2] for each in found if is_named(each)} & EFFECTS


def chains() -> Iterator[tuple[str, str]]:
    """Each function of the production code that asks for two or more effects: its file and its name. Left out are those
    that ask for a `ProposalRefused`, too: they wait for the answer to a command of their own.
    """
    for path in sorted(chain.from_iterable((TOP / top).rglob("*.py") for top in ("fallow", "services", "shared"))):
        text = path.read_text(encoding="utf-8")
        names_two = len(EFFECTS.intersection(re.findall(r"\w+", text))) > 1  # else there is nothing to parse
        for node in ast.walk(ast.parse(text)) if names_two else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                effects_of_it = asked_for(node)
                if len(effects_of_it) > 1 and "ProposalRefused" not in effects_of_it:
                    yield path.relative_to(TOP).as_posix(), node.name


KINDS = {kind.__name__ for kind in get_args(effects.AnyEffect)}
FOLLOW_AN_ANSWER = {"answers_to", "answer_of", "give", "is_no_to"}
"""By these the command line gives a command and waits for what comes of it, or knows a no to it."""


def answers() -> Iterator[tuple[str, str]]:
    """Each function of the command line that names the effect which is the yes to a command: its file and its name."""
    for path in sorted((TOP / "fallow" / "cli").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for body in (tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))):
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and knows_a_yes(node):
                    yield path.relative_to(TOP).as_posix(), node.name


def knows_a_yes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    parts = [part for line in function.body for part in ast.walk(line)]  # without the types of what it is given
    names = {ast.unparse(part).rpartition(".")[2] for part in parts if is_named(part)} & KINDS
    calls = {ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)}
    follows = "ProposalRefused" in asked_for(function) or not calls.isdisjoint(FOLLOW_AN_ANSWER)
    return follows and names > names & {"ProposalRefused", "JobRefused"}


@pytest.mark.parametrize(
    ("text", "knows"),
    [
        ("run(answers_to(access, wishes, (NodeChanged,), wait_ms))", True),
        ("isinstance(x, ProposalRefused) or isinstance(x, e.QuotaSet)", True),
        ("done = JobHeld\nreturn isinstance(x, done) or is_no_to(x)", True),
        ("isinstance(x, ProposalRefused)", False),
        ("give(access, wish)", False),
        ("isinstance(x, NodeChanged)", False),
    ],
)
def test_what_knows_the_yes_to_a_command(text: str, *, knows: bool) -> None:
    made = ast.FunctionDef("f", ast.arguments([], [], None, [], [], None, []), ast.parse(text).body, [])
    assert knows_a_yes(made) is knows


@pytest.mark.parametrize("found", [tables, chains, answers])
def test_every_table_of_effects_or_reasons_and_every_function_that_goes_by_effects_is_named_by_the_guide(
    found: Callable[[], Iterator[tuple[str, str]]],
) -> None:
    """Otherwise a person who adds an effect does not learn that it belongs there."""
    told = {(name.rpartition(".")[2], file) for name, file in named()}
    assert [(file, name) for file, name in found() if not any(name == n and file.endswith(f) for n, f in told)] == []


@pytest.mark.parametrize(
    ("text", "effects_of_it"),
    [
        ("isinstance(x, e.JobStarted) or isinstance(x, JobFailed)", {"JobStarted", "JobFailed"}),
        ("isinstance(x, e.JobStarted | e.JobFailed | int)", {"JobStarted", "JobFailed"}),
        ("isinstance(x, (JobStarted, JobFailed))", {"JobStarted", "JobFailed"}),
        ("type(x) is JobStarted or kind is not e.JobFailed or isinstance(x, str)", {"JobStarted", "JobFailed"}),
        ("type(x) in (e.JobStarted, JobFailed) or kind in OTHERS", {"JobStarted", "JobFailed"}),
        ("match type(x):\n    case e.JobStarted | e.JobFailed:\n        pass", {"JobStarted", "JobFailed"}),
        ("x == JobStarted(job=j) or give(JobFailed)", set()),
        ("match x:\n    case e.JobStarted() | JobFailed(job=j):\n        pass", {"JobStarted", "JobFailed"}),
    ],
)
def test_for_which_effects_a_function_asks(text: str, effects_of_it: set[str]) -> None:
    assert asked_for(ast.parse(text)) == effects_of_it


@pytest.mark.parametrize(
    ("text", "is_table"),
    [
        ("frozenset({e.JobStarted, e.JobFailed})", True),
        ("{PendingReason.HELD: 'held', PendingReason.AFTER: 'after'}", True),
        ("(None, PendingReason.HELD, *OTHERS)", True),
        ("('quota_reached', 'fragmented')", True),
        ("JobStarted | JobFailed", True),
        ("(e.JobStarted,)", False),
        ("Decoder(tuple[int, JobStarted])", False),
        ("('maintenance', 'drain')", False),
    ],
)
def test_what_counts_as_a_table_of_effects_or_reasons(text: str, *, is_table: bool) -> None:
    assert names_some(ast.parse(text, mode="eval").body) is is_table


def test_whether_a_quota_keeps_a_job_off_goes_by_the_kind_of_the_reason() -> None:
    """Another reason of the kind counts wherever the first one does."""
    assert [code for code in PendingReason if is_of_quota(code)] == [
        code for code in PendingReason if PRECEDENCE[code] is ReasonKind.QUOTA
    ]
    compared = re.compile(r"is (not )?PendingReason\.QUOTA_REACHED")
    assert [path.name for path in POLICY.rglob("*.py") if compared.search(path.read_text(encoding="utf-8"))] == []


def test_a_policy_that_says_nothing_of_what_it_learns_is_not_asked_on_other_nodes_than_the_cells() -> None:
    policy = POLICIES["first-fit"]
    assert PlacementPolicy(policy.name, policy.what_for, policy.gang, policy.alone).learns
