"""Nothing that placement reads is passed over in silence: it has a case of its own, or its sender learns that it has
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from fallow.services.placement.lifecycle.nodes.invalid_events import RejectedEvent
from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.codec.encoding import decode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.nodes import NodeEvent, NodeJoined, RunProgressed
from fallow.shared.events.proposals import Proposal
from fallow.shared.events.reasons import DeadLetterReason, ProposalCode
from tests.fuzz.entries import golden
from tests.placement.worlds.world import CELL, admitted, cell_with, joined, spec_of, started

NEEDS_NO_ANSWER = (o.ReloadCell, RunProgressed)
"""The shell reads the cell file before placement sees that it is to; and how far a run has come decides nothing."""


class Sing(o.Operation):
    """A command of which placement knows nothing. It enters no table of types."""

    type: ClassVar[str] = "fallow.cell.sing.v1"
    topic: ClassVar[str] = o.Cordon.topic


class Shout(Sing):
    """A command to one node."""

    type: ClassVar[str] = "fallow.node.shout.v1"
    node: str


class NodeSang(NodeEvent):
    """What a node says, and placement knows nothing of."""

    type: ClassVar[str] = "fallow.node.sang.v1"
    topic: ClassVar[str] = NodeJoined.topic


def all_of(base: type[Event]) -> list[type[Event]]:
    """Every class of the language that is one of these."""
    return [kind for kind in TYPES.values() if issubclass(kind, base)]


def a_good(kind: type[Event]) -> Event:
    event = decode(kind.type, golden(kind.type))
    assert isinstance(event, kind)
    return event


def refused(effects: list[e.AnyEffect]) -> Iterator[tuple[str, ProposalCode, str]]:
    for effect in effects:
        assert isinstance(effect, e.ProposalRefused)
        yield effect.proposal, effect.code, effect.text


@pytest.mark.parametrize("kind", [*all_of(o.Operation), *all_of(Proposal)])
def test_every_command_is_answered_or_passes_on_purpose(kind: type[Event]) -> None:
    effects = cell_with().tell(a_good(kind))
    assert bool(effects) is (kind not in NEEDS_NO_ANSWER)


@pytest.mark.parametrize("kind", all_of(o.Operation))
def test_no_command_of_the_language_is_without_a_case(kind: type[Event]) -> None:
    effects = cell_with().tell(a_good(kind))
    text = f"{kind.type} is not carried out by this version"
    assert text not in [effect.text for effect in effects if isinstance(effect, e.ProposalRefused)]


@pytest.mark.parametrize(
    ("command", "about"),
    [(Sing(cell=CELL), "fallow.cell.sing.v1"), (Shout(cell=CELL, node="n1"), "n1")],
)
def test_a_command_without_a_case_is_refused_as_unsupported(command: o.Operation, about: str) -> None:
    effects = cell_with(joined("n1")).tell(command)
    text = f"{command.type} is not carried out by this version"
    assert [*refused(effects)] == [(about, ProposalCode.UNSUPPORTED, text)]


def strays_of(kind: type[Event]) -> list[RejectedEvent]:
    """What is set aside when the node says this of itself, or of the run that it has."""
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("a")))
    said = started("a", "n1")
    ours = {name: getattr(said, name) for name in ("node", "boot", "job", "attempt") if name in kind.__struct_fields__}
    event = a_good(kind) if kind in TYPES.values() else kind(cell=CELL, node="n1", boot=said.boot, seq=0, at_ms=0)
    world.tell(replace(event, **ours))
    return [why for _, why in world.service.take_strays()]


@pytest.mark.parametrize("kind", all_of(NodeEvent))
def test_every_event_of_a_node_has_a_case(kind: type[Event]) -> None:
    assert DeadLetterReason.UNKNOWN_TYPE not in [why.reason for why in strays_of(kind)]


def test_an_event_of_a_node_without_a_case_is_set_aside() -> None:
    text = "ce_type: placement reads no fallow.node.sang.v1"
    assert strays_of(NodeSang) == [RejectedEvent(DeadLetterReason.UNKNOWN_TYPE, text)]
