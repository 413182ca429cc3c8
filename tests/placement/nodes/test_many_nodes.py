"""How many nodes a cell may have, and how many labels and taints a node: what is more is set aside with the figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fallow.services.executor.settings import AgentSettings
from fallow.services.placement.lifecycle.nodes import invalid_events
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import LABELS_MAX, TAINTS_MAX, NodeStatus
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.snapshots import CHUNK_BYTES_MAX, SnapshotManifest
from fallow.shared.log.machine.snapshot import NEWEST, Whole, build, cut_whole, json_bytes, manifest_of
from tests.placement.worlds.vast import is_sound, quick
from tests.placement.worlds.world import World, joined, lost, report

SCALE_NODES = 20_000
AT_ONCE = 500


def labels(count: int) -> dict[str, str]:
    return {f"label-{number:03}": f"value-{number:03}" for number in range(count)}


def set_aside(world: World) -> list[tuple[DeadLetterReason, str]]:
    return [(stray.reason, stray.text) for _, stray in world.service.take_strays()]


@pytest.mark.parametrize(
    ("field", "allowed", "more"),
    [
        ("labels", labels(LABELS_MAX), labels(LABELS_MAX + 1)),
        ("taints", tuple(labels(TAINTS_MAX)), tuple(labels(TAINTS_MAX + 1))),
    ],
)
def test_a_node_with_too_many_labels_or_taints_does_not_join(field: str, allowed: Any, more: Any) -> None:
    world = quick(*(joined(name, **{field: told}) for name, told in (("n1", allowed), ("n2", more))))
    most = LABELS_MAX if field == "labels" else TAINTS_MAX
    text = f"spec.{field}: {most + 1}, a node has at most {most} {field}"
    assert set_aside(world) == [(DeadLetterReason.TOO_MANY_LABELS, text)]
    assert sorted(world.state.nodes) == ["n1"]
    is_sound(world)


def test_a_node_that_is_there_keeps_its_labels_where_it_tells_too_many() -> None:
    world = quick(joined("n1", labels=labels(3)), joined("n1", labels=labels(LABELS_MAX + 1)))
    assert [reason for reason, _ in set_aside(world)] == [DeadLetterReason.TOO_MANY_LABELS]
    assert world.state.nodes["n1"].spec.labels == labels(3)


def test_a_cell_takes_no_more_nodes_than_it_may_have_and_those_that_it_has_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invalid_events, "NODES_MAX", 3)
    world = quick(*(joined(f"n{number}") for number in range(4)))
    text = "node: n3 is one more than the 3 nodes that cell cell-a may have"
    assert set_aside(world) == [(DeadLetterReason.TOO_MANY_NODES, text)]
    assert sorted(world.state.nodes) == ["n0", "n1", "n2"]
    world.tell(lost("n0"), joined("n0", boot="boot-2"), joined("n1", labels=labels(2)))
    assert set_aside(world) == []
    assert world.state.nodes["n0"].boot == "boot-2"
    assert world.state.nodes["n1"].spec.labels == labels(2)
    is_sound(world)


def test_an_agent_with_too_many_labels_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="node_labels"):
        AgentSettings(node="n1", node_gpus=8, node_pool="train", state_dir=tmp_path, node_labels=labels(LABELS_MAX + 1))


def test_a_cell_may_have_the_nodes_of_tens_of_thousands_of_gpus() -> None:
    assert invalid_events.NODES_MAX >= 2 * SCALE_NODES


def snapshot_of(state: CellState) -> Whole:
    made = cut_whole(state, "test")
    pieces = tuple(chunk.rows for chunk in made.chunks)
    manifest = manifest_of(state, made.head.snapshot, slot=NEWEST, parts=len(pieces), digest=digest_of(state))
    assert isinstance(manifest, SnapshotManifest)
    return Whole(manifest, pieces)


def test_records_snapshots_and_readers_bear_twenty_thousand_nodes_with_labels() -> None:
    world = quick()
    names = [f"node-{number:05}" for number in range(SCALE_NODES)]
    for first in range(0, SCALE_NODES, AT_ONCE):
        world.tell(*(joined(name, labels=labels(8), taints=("gpu",)) for name in names[first : first + AT_ONCE]))
    assert (len(world.state.nodes), set_aside(world), world.unwritable) == (SCALE_NODES, [], [])
    world.tell(*(report(name) for name in names[:AT_ONCE]))
    assert all(node.status is NodeStatus.READY for node in world.state.nodes.values())
    whole = snapshot_of(world.state)
    assert max(sum(json_bytes(row) for row in rows) for rows in whole.pieces) <= CHUNK_BYTES_MAX
    read = CellState(world.state.cell)
    for _ in build(read, whole):
        continue
    assert digest_of(read) == digest_of(world.state)
