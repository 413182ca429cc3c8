"""`fallow policy`: the numbers by which a cell decides."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import refuse
from fallow.cli.errors.unanswered import check_silence, passed_over
from fallow.cli.log.newest import newest_state
from fallow.cli.node.operate import answer_of, operation, tell_answer
from fallow.cli.output.durations import SECOND_MS, setting
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_table
from fallow.cli.output.when import DURATION_RULE, duration_of
from fallow.shared.client.port import News
from fallow.shared.cluster.model.config import PLACEMENTS
from fallow.shared.events.effects import PolicySet, ProposalRefused
from fallow.shared.events.operations import CellPolicy, EstimatorKind, Operation, SetPolicy
from fallow.shared.near import meant

app = typer.Typer(no_args_is_help=True, help="Show and change the numbers by which a cell decides.")

ESTIMATORS = tuple(each.value for each in EstimatorKind)

SET_POLICY = "set-policy"
"""How a refusal names what it is about."""

LOOK_AFTER_MS = 2_000
"""A policy that is as wished already gets no answer: after so long the log is asked."""

Settings = Annotated[
    list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings and their values.", show_default=False)
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@app.command()
def show(context: typer.Context, cell: CellName = None, as_json: AsJson = False) -> None:
    """All settings that can change while the cell runs, with their values."""
    access = access_of(context)
    state = run(newest_state(access, access.cell(cell)))
    settings = asdict(state.policy)
    if as_json:
        print_json({"cell": state.cell, "version": state.version, "policy": settings})
    else:
        rows = [(name, setting(name, value)) for name, value in settings.items()]
        print_table(f"Policy of cell {state.cell} at version {state.version}", ("SETTING", "VALUE"), rows)


@app.command("set")
def set_(
    context: typer.Context, settings: Settings, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Change settings while the cell runs; what is not named stays as it is."""
    access = access_of(context)
    wished = _read(settings)
    wish = operation(SetPolicy, _typed(settings), cell=access.cell(cell), policy=wished, fields=list(wished))
    before, answer = run(_answer(access, wish, wished, timeout_s * 1000))
    subject = " ".join(settings)
    if not isinstance(answer, CellPolicy):
        event = None if answer is None else answer.event
        told = changes(before, event.policy) if isinstance(event, PolicySet) else ""
        tell_answer({"policy": subject}, answer, timeout_s, as_json=as_json, told=told)
        return
    text = f"The policy has {subject} already."
    if as_json:
        print_json({"policy": subject, "ok": True, "version": None, "answer": text})
    else:
        print_line(text)


def _read(settings: list[str]) -> dict[str, Any]:
    """The settings by name; ends the command where one is unknown, twice, or no pair. Values are read as JSON, and
    what is none as words; a time in milliseconds may be written as a duration, too.
    """
    found: dict[str, Any] = {}
    for text, behind in pairwise([*settings, ""]):
        key, equals, value = text.partition("=")
        if not equals or key not in CellPolicy.__struct_fields__ or key in found:
            refuse("KEY=VALUE", text, _key_rule(key, behind, is_pair=bool(equals), is_twice=key in found))
        if key == "placement" and isinstance(_value(value), str) and value not in PLACEMENTS:
            refuse(key, value, f"must be one of {', '.join(PLACEMENTS)}{meant(value, PLACEMENTS)}")
        if key == "estimator" and value not in ESTIMATORS:
            refuse(key, value, f"must be one of {', '.join(ESTIMATORS)}{meant(value, ESTIMATORS)}")
        found[key] = _time(key, value) if key.endswith("_ms") else _value(value)
    return found


def _typed(settings: list[str]) -> dict[str, str]:
    """How each duration was typed, by its field in the command."""
    pairs = [text.split("=", 1) for text in settings]
    return {f"policy.{key}": value.strip() for key, value in pairs if key.endswith("_ms")}


def _time(key: str, value: str) -> int:
    """Milliseconds, written as a number or as a duration. Less than a second needs its unit: a user who writes 20 most
    likely means seconds, and a grace of 20 ms ends jobs before they write a checkpoint.
    """
    duration_ms = duration_of(value)
    if duration_ms is not None:
        return duration_ms
    if re.fullmatch(r"-?[0-9]{1,19}", value) is None:
        refuse(key, value, f"must be a whole number of milliseconds of up to 19 digits, or {DURATION_RULE}")
    number = int(value)
    if 0 < number < SECOND_MS:
        refuse(key, value, f"is less than a second and needs a unit: {number}ms, or {number}s")
    return number


def _value(text: str) -> Any:
    """What is JSON as its value, all else as text."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(word: str) -> Any:
    """NaN and infinity are numbers to Python, but JSON has neither."""
    raise ValueError(f"{word} is no JSON")


def _key_rule(key: str, behind: str, *, is_pair: bool, is_twice: bool) -> str:
    """What is wrong with a setting that is none, stands twice or has no value; `behind` is the word behind it."""
    known = CellPolicy.__struct_fields__
    if is_pair and is_twice:
        return f"{key} stands twice"
    if key in known:
        return f"must be a setting and its value: {key}={behind if behind and '=' not in behind else 'VALUE'}"
    return f"there is no setting {key}{meant(key, known)}; `fallow policy show` lists them"


def changes(before: CellPolicy, now: CellPolicy) -> str:
    """What is other than before: `backfill_wait_ms: 1800000 (30 min) -> 600000 (10 min)`."""
    pairs = [(name, getattr(before, name), getattr(now, name)) for name in CellPolicy.__struct_fields__]
    return ", ".join(f"{name}: {setting(name, old)} -> {setting(name, new)}" for name, old, new in pairs if old != new)


async def _answer(
    access: Access, wish: Operation, wished: dict[str, Any], wait_ms: int
) -> tuple[CellPolicy, News | CellPolicy | None]:
    """The policy before, and the log's answer, or the policy if it was so already, or None if there is neither in
    time.
    """

    def is_answer(news: News) -> bool:
        event = news.event
        if isinstance(event, ProposalRefused):
            return event.proposal == SET_POLICY
        return isinstance(event, PolicySet) and _has(event.policy, wished)

    before = (await newest_state(access, wish.cell)).policy
    async with access.client() as client:
        mark = await client.operate(wish)
        answer = await answer_of(client, mark, is_answer, min(wait_ms, LOOK_AFTER_MS))
        if answer is None and not passed_over(client, mark, wish.cell):
            policy = (await newest_state(access, wish.cell)).policy
            if _has(policy, wished):
                return before, policy
        answer = answer or await answer_of(client, mark, is_answer, max(0, wait_ms - LOOK_AFTER_MS))
        if answer is None:
            check_silence(client, mark, "the policy", wish.cell)
        return before, answer


def _has(policy: CellPolicy, wished: dict[str, Any]) -> bool:
    return all(getattr(policy, key) == value for key, value in wished.items())
