"""Operators' commands: checked here, given to the cell, and followed until the log answers them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import typer

from fallow.cli.access import Access
from fallow.cli.arguments.user_name import user_name
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.errors.unanswered import Passes, check_silence, unanswered
from fallow.cli.errors.wrong_use import own_words
from fallow.cli.job.submit import words
from fallow.cli.output.durations import duration
from fallow.cli.output.output import print_json, print_sentence
from fallow.shared.client.port import CellClient, Mark, News
from fallow.shared.events.codec.encoding import Undecodable, decode
from fallow.shared.events.effects import JobRefused, ProposalRefused
from fallow.shared.events.operations import Operation
from fallow.shared.runtime.clocks import monotonic_ms

IsAnswer = Callable[[News], bool]
AnOperation = TypeVar("AnOperation", bound=Operation)

ONE_QUOTA = "quotas[0]."
"""What options say of a quota; a file of several is checked as it is read."""

REFUSALS = (JobRefused, ProposalRefused)


def typed_as(field: str) -> str:
    """How a field of an operation is called on the command line: `TENANT` and `--weight` of a quota, a setting of a
    policy by its own name.
    """
    if not field.startswith(ONE_QUOTA):
        return field.removeprefix("policy.")
    name = field.removeprefix(ONE_QUOTA).removesuffix("_milli").removesuffix("_ms")
    return "TENANT" if name == "tenant" else f"--{name.replace('_', '-')}"


def operation(kind: type[AnOperation], typed: Mapping[str, str] | None = None, **fields: Any) -> AnOperation:
    """The command with these fields, those that are None left out; ends the command line where one is not valid. A
    duration was `typed` so, by its field: a bound of it is told in the same terms.
    """
    given = {name: value for name, value in {**fields, "by": user_name()}.items() if value is not None}
    found = decode(kind.type, json.dumps(given).encode())
    if isinstance(found, Undecodable):
        # No `repr`: signs that a terminal obeys are written out in the value already.
        value, rule = found.value, own_words(found.rule)
        if (text := (typed or {}).get(found.field)) is not None:
            value, rule = text, _of_a_duration(text, found.value, rule)
        of = f"{field} = '{value}': " if (field := typed_as(found.field)) else ""
        end_with(Exit.USAGE, f"fallow: {of}{rule}")
    assert isinstance(found, kind), "operations have types of their own"
    return found


def _of_a_duration(text: str, ms: str, rule: str) -> str:
    """The rule that a duration breaks, with both in milliseconds and in the units in which durations are typed."""
    bound = re.fullmatch(r"(must be at (?:most|least)) ([0-9]+)", rule)
    if bound is not None:
        words, plain = duration(int(bound[2])), f"{bound[2]} ms"
        rule = f"{bound[1]} {words if words == plain else f'{words} ({plain})'}"
    return rule if text.removesuffix("ms").strip() == ms else f"{text} is {ms} ms; {rule}"


async def give(access: Access, wish: Operation, is_answer: IsAnswer, wait_ms: int, about: str) -> News | None:
    """Give the command, which is about this; the log's answer, or None if there is none in time. Raises
    ClientUnavailable.
    """
    async with access.client() as client:
        mark = await client.operate(wish)
        answer = await answer_of(client, mark, is_answer, wait_ms)
        if answer is None:
            check_silence(client, mark, about, wish.cell)
        return answer


async def answer_of(client: CellClient, mark: Mark, is_answer: IsAnswer, wait_ms: int) -> News | None:
    """The first piece of news after the mark that is the answer, or None if none comes in time."""
    deadline = monotonic_ms() + wait_ms
    async with aclosing(client.news(mark)) as found:
        async for some in found:
            answer = next((news for news in some if is_answer(news)), None)
            if answer is not None or monotonic_ms() > deadline:
                return answer
    return None


def tell_answer(subject: dict[str, str], answer: News | None, timeout_s: int, *, as_json: bool, told: str = "") -> None:
    """Print what came of the command, waited for so long; `subject` is what it was about, by name. `told` stands in
    place of the answer's own words. Exit 1 if the cell said no, 3 if it said nothing yet.
    """
    name = next(iter(subject.values()))
    if answer is None:
        end_with(Exit.AWAY, f"fallow: {unanswered(name, Passes.PLACEMENT, timeout_s)}")
    is_refused = isinstance(answer.event, REFUSALS)
    said = told or (refusal_of(name, answer.event) if isinstance(answer.event, ProposalRefused) else words(answer))
    if as_json:
        print_json({**subject, "ok": not is_refused, "version": answer.version, "answer": said})
    else:
        print_sentence(said)
    if is_refused:
        raise typer.Exit(Exit.NO)


def refusal_of(name: str, event: ProposalRefused) -> str:
    """The cell's no, which names what it is about if it is of one part of it."""
    return event.text if event.text.startswith((f"{name}:", f"{name}/")) else f"{name}: {event.text}"
