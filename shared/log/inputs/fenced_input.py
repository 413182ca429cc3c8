"""What a process says of an input that it reads no further, since the topic has lost records."""

from __future__ import annotations

from typing import Any

from fallow.shared.log.machine.losses import Loss
from fallow.shared.log.port import TopicPartition
from fallow.shared.runtime.process import Context

INPUT_FENCED = "input fenced"
"""What the log of the process says of each input that it reads no further."""


def show_fenced(context: Context[Any], loss: Loss, reason: str, cell: str = "") -> None:
    """The process is not ready for this input, which may be that of one `cell`, for `reason`."""
    context.health.not_ready(reason, _subject(loss.tp), cell=cell)


def say_fenced(context: Context[Any], loss: Loss, reason: str, **about: str) -> None:
    """Report the loss, and write its place and reason into the process's log. `about` says whose input it is."""
    topic, partition = loss.tp
    show_fenced(context, loss, reason, about.get("cell", ""))
    context.logger.error(
        INPUT_FENCED,
        **about,
        topic=topic,
        partition=partition,
        offset=loss.next_offset,
        why=loss.kind.value,
        begin=loss.begin,
        end=loss.end,
        reason=reason,
    )


def say_read_again(context: Context[Any], tp: TopicPartition) -> None:
    """The input is read again, or is no longer this process's to read."""
    context.health.ready(_subject(tp))


def _subject(tp: TopicPartition) -> str:
    return f"{tp[0]}/{tp[1]}"
