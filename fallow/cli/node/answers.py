"""What the cell answers to commands on nodes: each node has its own answer, and the worst gives the exit code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from typing import Any

import typer

from fallow.cli.access import Access, run
from fallow.cli.cell.retry import patiently
from fallow.cli.errors.failures import Exit, say
from fallow.cli.errors.unanswered import Passes, passed_over, unanswered, unread_about
from fallow.cli.job.submit import words
from fallow.cli.node.operate import refusal_of
from fallow.cli.output.output import print_json, print_sentence
from fallow.shared.client.port import ClientUnavailable, News
from fallow.shared.events.effects import Effect, NodeChanged, ProposalRefused
from fallow.shared.events.operations import Operation
from fallow.shared.near import meant
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.view.rows import NodeRow

Answers = dict[str, News | str | None]
"""The log's answer for each node; None where there is none in time, and words where they say why none can be read."""


async def rows_by_id(access: Access, cell: str) -> dict[str, NodeRow]:
    """Every node of the cell as the view has it. Raises ClientUnavailable."""
    async with access.client() as client:
        return {row.id: row for row in (await patiently(lambda: client.nodes(cell))).value}


async def answers_to(
    access: Access, wishes: Mapping[str, Operation], done: tuple[type[Effect], ...], wait_ms: int
) -> Answers:
    """Give the commands, one for each node, and follow them for `wait_ms`; `done` are the effects that answer with yes.
    Raises ClientUnavailable.
    """
    found: Answers = dict.fromkeys(wishes)
    async with access.client() as client:
        marks = [await client.operate(wish) for wish in wishes.values()]
        deadline_ms = monotonic_ms() + wait_ms
        async with aclosing(client.news(marks[0])) as stream:
            async for some in stream:
                for news in some:
                    node = _node_of(news.event, done)
                    if node in found and found[node] is None:
                        found[node] = news
                if None not in found.values() or monotonic_ms() > deadline_ms:
                    break
        unread = {node: passed_over(client, marks[0], wish.cell) for node, wish in wishes.items()}
    return {node: answer or unread_about(node, unread[node]) or None for node, answer in found.items()}


def _node_of(event: object, done: tuple[type[Effect], ...]) -> str:
    """The node about whose command this is an answer."""
    if isinstance(event, ProposalRefused):
        return event.proposal
    if not isinstance(event, done):
        return ""
    return event.spec.id if isinstance(event, NodeChanged) else str(getattr(event, "node", ""))


def unknown_among(access: Access, cell: str, answers: Answers) -> dict[str, str]:
    """What to try instead of those refused ids that no node has; of none where the view does not say."""
    refused = [node for node, news in answers.items() if is_refused(news)]
    if refused:
        with suppress(ClientUnavailable):
            known = list(run(rows_by_id(access, cell)))
            return {node: other_nodes(node, known) for node in refused if node not in known}
    return {}


def other_nodes(node: str, known: Collection[str]) -> str:
    """Behind the words that there is no such node: the id that was meant, and where they are listed."""
    return f"{meant(node, known)}; `fallow nodes` lists them"


def tell_each(
    answers: Answers,
    timeout_s: int,
    *,
    as_json: bool,
    hints: Mapping[str, str],
    behind: Mapping[str, str] | None = None,
    more: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Tell the outcome of each node, waited for so long; the exit code is that of the worst. Of a node that is not
    refused `behind` is a line behind its answer, and `more` what JSON says beside it.
    """
    more = more or {}
    told = [
        outcome(node, answer, timeout_s, hints.get(node, "")) | more.get(node, {}) for node, answer in answers.items()
    ]
    if as_json:
        one = told[0] if len(told) == 1 else {"nodes": told}
        print_json({"ok": all(each["ok"] for each in told), **one})
    for each in told:
        if each["version"] is None:
            say(f"fallow: {each['answer']}")
        elif not as_json:
            print_sentence(str(each["answer"]))
            if each["ok"] and (line := (behind or {}).get(str(each["node"]))):
                print_sentence(line)
    if not all(each["ok"] for each in told):
        is_refused = any(not each["ok"] and each["version"] is not None for each in told)
        raise typer.Exit(Exit.NO if is_refused else Exit.AWAY)


def is_refused(answer: News | str | None) -> bool:
    """Whether the cell said no."""
    return isinstance(answer, News) and isinstance(answer.event, ProposalRefused)


def outcome(node: str, answer: News | str | None, timeout_s: int, hint: str = "") -> dict[str, Any]:
    """One node's answer for programs."""
    if not isinstance(answer, News):
        said = answer or unanswered(node, Passes.PLACEMENT, timeout_s)
        return {"node": node, "ok": False, "version": None, "answer": said}
    assert isinstance(answer.event, Effect), "answers come from the log of decisions"
    if isinstance(answer.event, ProposalRefused):
        said = f"{refusal_of(node, answer.event)}{hint}"
        return {"node": node, "ok": False, "version": answer.version, "answer": said}
    return {"node": node, "ok": True, "version": answer.version, "answer": words(answer)}
