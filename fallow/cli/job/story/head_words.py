"""The head that keeps a job back, in words."""

from __future__ import annotations

from fallow.cli.log.sentences import gpus
from fallow.cli.output.durations import moment
from fallow.services.placement.explain.explain import Behind
from fallow.services.placement.search.reason_precedence import OF_QUOTA
from fallow.shared.events.reasons import PendingReason

POOLS_NAMED_MAX = 3

_PLAIN = (None, PendingReason.NO_FREE_GPUS, *sorted(OF_QUOTA))
"""Codes that what the head waits for tells already."""


def head_words(head: Behind) -> str:
    """`big, the head of queue urgent (strict-fifo), which waits for 40 GPUs in training`: behind `it may not pass`."""
    since = "" if head.since_ms is None else f" since {moment(head.since_ms)}"
    planned = "" if head.planned_ms is None else f", and is planned for {moment(head.planned_ms)}, by estimates"
    waits = f"which waits for {_wanted(head)}{planned}"
    return f"{head.job},{since} the head of queue {head.queue} ({head.discipline}), {waits}"


def _wanted(head: Behind) -> str:
    room = gpus(head.gpus_milli) if head.gpus_milli else "room"
    if head.under is not None:
        return f"{room} within the quota of {head.under}"
    code = "" if head.code in _PLAIN else f" ({head.code})"
    return f"{room}{_in(head.pools)}{code}"


def _in(pools: tuple[str, ...]) -> str:
    named = list(pools[:POOLS_NAMED_MAX])
    if len(pools) > POOLS_NAMED_MAX:
        named.append(f"{len(pools) - POOLS_NAMED_MAX} more")
    if not named:
        return ""
    *first, last = named
    return f" in {', '.join(first)} or {last}" if first else f" in {last}"
