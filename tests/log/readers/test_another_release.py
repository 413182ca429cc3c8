"""A log that another release wrote: what its records mean is not known here, also where every field is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.cli.log.file import write_line, written_in_order
from fallow.cli.log.repairing import NotRepairable, survey
from fallow.cli.verify.verification import verify_file
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.events import TYPES, Event, decode
from fallow.shared.events.base import LANGUAGE
from fallow.shared.events.codec.encoding import OUTSIDE, OfAnotherRelease
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from fallow.shared.log.snapshots import OtherReleasesSnapshots
from tests.events.write_golden import path_of
from tests.histories import CELL, History, outgoing
from tests.log.worlds.earlier_release import CELL_OF_IT, as_then, first_decision
from tests.log.worlds.snapshot_world import all_records, snapshot

assert CELL == CELL_OF_IT

LAYOUT = Layout("t", {CELL: 0})
DECISIONS, SNAPSHOTS = LAYOUT.tp("decisions", CELL), LAYOUT.tp("snapshots", CELL)
TOPICS = ("decisions", "snapshots", "jobs", "nodes", "proposals", "operations")
OWN = int(LANGUAGE.removeprefix("v"))
OTHERS = [f"v{number}" for number in range(1, OWN + 2) if number != OWN]
"""Each version before, and the next."""

TOLD = r'of another release.*\(got fallow\.[a-z.]+\.v1.*docs/operations\.md, "Upgrade it"'


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in TOPICS:
        made.create_topic(LAYOUT.topic(topic), 1)
    return made


async def followed(broker: MemoryBroker) -> Follower:
    """A reader that has come to the end."""
    follower = Follower(MemoryLog(broker), LAYOUT, CELL)
    await follower.start()
    try:
        await follower.catch_up()
    finally:
        await follower.stop()
    return follower


def write(broker: MemoryBroker, *messages: Outgoing) -> None:
    for message in messages:
        broker.write(message)


@pytest.mark.parametrize("cls", [cls for cls in TYPES.values() if cls.topic not in OUTSIDE - {"nodes"}])
def test_what_services_and_agents_write_for_each_other_is_read_in_one_version_alone(cls: type[Event]) -> None:
    stem, _, version = cls.type.rpartition(".")
    value = path_of(cls).read_bytes()
    assert version == LANGUAGE
    assert isinstance(decode(cls.type, value), cls)
    for other in OTHERS:
        found = decode(f"{stem}.{other}", value)
        assert isinstance(found, OfAnotherRelease)
        assert str(found) == f"ce_type: is of another release, this one reads {cls.type} (got {stem}.{other})"


async def test_a_log_that_names_jobs_by_their_ids_alone_is_not_folded(broker: MemoryBroker) -> None:
    write(broker, first_decision(LAYOUT))
    with pytest.raises(DamagedLog, match=TOLD) as found:
        await followed(broker)
    assert found.value.offset == 0


async def test_a_log_on_which_another_release_went_on_is_not_folded_beyond_that(broker: MemoryBroker) -> None:
    history = History(3)
    write(broker, *outgoing(LAYOUT, history.decisions(5)))
    follower = await followed(broker)
    write(broker, *map(as_then, outgoing(LAYOUT, history.decisions(1), follower.state.chain)))
    with pytest.raises(DamagedLog, match=TOLD) as found:
        await followed(broker)
    assert found.value.offset == 5


async def test_a_log_of_another_release_is_not_folded_from_its_snapshot(broker: MemoryBroker) -> None:
    history, written = History(4), MemoryBroker()
    for topic in ("decisions", "snapshots"):
        written.create_topic(LAYOUT.topic(topic), 1)
    decisions = outgoing(LAYOUT, history.decisions(10))
    await snapshot(MemoryLog(written), LAYOUT, history.state)
    for record in await all_records(MemoryLog(written), LAYOUT):
        write(broker, as_then(Outgoing(record.topic, record.value, record.key, record.headers, 0)))
    write(broker, *map(as_then, decisions))
    with pytest.raises(DamagedLog, match=TOLD):
        await followed(broker)
    broker.delete_before(DECISIONS, 10)
    with pytest.raises(OtherReleasesSnapshots, match=TOLD):
        await followed(broker)


async def test_a_cell_that_was_moved_with_another_release_is_not_begun_anew(broker: MemoryBroker) -> None:
    """Its log begins behind a snapshot, which cannot be read: so no chain is known that the first record continues."""
    write(broker, as_then(first_decision(LAYOUT, chain_before="f" * 32)))
    with pytest.raises(DamagedLog, match=TOLD):
        await followed(broker)


async def test_what_a_stranger_calls_of_another_release_stops_no_reader_of_a_cell_that_has_begun(
    broker: MemoryBroker,
) -> None:
    history = History(3)
    write(broker, *outgoing(LAYOUT, history.decisions(5)), first_decision(LAYOUT, chain_before="f" * 32))
    follower = await followed(broker)
    assert (follower.state.version, follower.state.chain) == (history.state.version, history.state.chain)
    assert follower.state.skipped == 1


async def test_the_log_of_another_release_is_not_repaired_away(broker: MemoryBroker) -> None:
    write(broker, first_decision(LAYOUT))
    with pytest.raises(NotRepairable, match=TOLD):
        await survey(MemoryLog(broker), LAYOUT, CELL)


def test_an_exported_log_of_another_release_is_no_proof(broker: MemoryBroker, tmp_path: Path) -> None:
    write(broker, first_decision(LAYOUT))
    path = tmp_path / "before.jsonl.gz"
    with written_in_order(path) as output:
        write_line(output, broker.partition(DECISIONS).records[0], 1)
    found = verify_file(path).first_violation
    assert found is not None
    assert "of another release" in found.text
