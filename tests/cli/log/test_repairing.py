"""A cell that has lost the tail of its log, or whose log is damaged, and the way back."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from fallow.cli.log.repair import lines_of, look_and_repair
from fallow.cli.log.repairing import From, NotRepairable, repair, survey
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.events.effects import InputResumed, LogRepaired
from fallow.shared.events.fields.value import replace
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.losses import LossKind
from fallow.shared.log.machine.snapshot import RowsDigest, hour_slot, manifest_of
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import AppendAnswer, LogTruncated, Outgoing, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import event_of
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from tests.cli.usage.test_user_name import make_nameless
from tests.histories import CELL, History, folded, outgoing
from tests.log.worlds.earlier_release import as_then
from tests.signing import signed

LAYOUT = Layout("t", {CELL: 0})
DECISIONS = LAYOUT.tp("decisions", CELL)
TOPICS = ("decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations")


class Kept:
    """A cell with a history of 40 decisions, a snapshot at version 20 and one at 40, and inputs that it has read.
    `key` signs the decisions, which the layout then believes.
    """

    def __init__(self, layout: Layout = LAYOUT, key: SigningKey | None = None) -> None:
        self.layout, self.key = layout, key
        self.broker = MemoryBroker()
        for topic in TOPICS:
            self.broker.create_topic(LAYOUT.topic(topic), 1)
        self.log = MemoryLog(self.broker)
        self.decisions: list[Decision] = []

    async def live(self, *, reads_inputs: bool = True) -> None:
        history = History(5)
        for count in (20, 20):
            some = history.decisions(count)
            self.decisions += some
            await self.log.publish(signed(LAYOUT, self.decisions, self.key)[-count:])
            catalogue = await read_catalogue(self.log, LAYOUT, CELL)
            await write_snapshot(self.log, LAYOUT, history.state, catalogue, writer="s", wall_ms=0)
        if reads_inputs:
            for name in ("jobs", "nodes"):
                partition = self.broker.partition(LAYOUT.tp(name, CELL))
                for _ in range(history.state.inputs.get(f"{name}-0", 0)):
                    self.broker.write_marker((partition_topic := LAYOUT.topic(name), 0))
                assert partition.end == history.state.inputs[f"{name}-0"], partition_topic

    async def state(self) -> CellState:
        """What a reader that starts afresh folds to."""
        follower = Follower(self.log, self.layout, CELL)
        await follower.start()
        await follower.catch_up()
        await follower.stop()
        return follower.state

    def forge(self, version: int) -> None:
        """A record of this version that continues no chain."""
        forged = Decision(cell=CELL, version=version, epoch=9, at_ms=10**15, inputs={}, effects=())
        more = ((CHAIN_HEADER, b"0" * 32),)
        self.broker.write(LAYOUT.outgoing(forged, id="f", source="rogue", wall_ms=0, more=more))

    def last(self) -> Decision:
        event = event_of(self.broker.partition(DECISIONS).records[-1])
        assert isinstance(event, Decision)
        return event


async def test_of_a_whole_log_nothing_is_to_be_repaired() -> None:
    kept = Kept()
    await kept.live()
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.state.version, found.state.offset) == (True, 40, 39)


async def test_several_snapshots_of_the_same_offset_contradict_nothing() -> None:
    """Two processes of queueing write at a handover: the hour's snapshot stays the first one's."""
    kept = Kept()
    await kept.live()
    state = await kept.state()
    for writer in ("s2", "s3"):
        catalogue = await read_catalogue(kept.log, LAYOUT, CELL)
        await write_snapshot(kept.log, LAYOUT, state, catalogue, writer=writer, wall_ms=0)
    manifests = (await read_catalogue(kept.log, LAYOUT, CELL)).manifests.values()
    assert len({m.snapshot for m in manifests if m.offset == 39}) > 1
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.contradicting) == (True, [])


async def test_a_torn_snapshot_that_is_older_than_the_one_that_is_begun_with_contradicts_nothing() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.delete_before(DECISIONS, 10)
    kept.broker.delete_before(LAYOUT.tp("snapshots", CELL), 1)
    catalogue = await read_catalogue(kept.log, LAYOUT, CELL)
    assert next(catalogue.is_whole(m) for m in sorted(catalogue.manifests.values(), key=lambda m: m.offset)) is False
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.contradicting, found.state.version) == (True, [], 40)


async def test_a_survey_begins_with_the_oldest_snapshot_that_can_be_read() -> None:
    """That of an older release may be the oldest one for as long as the log is kept."""
    kept = Kept()
    await kept.live()
    state, name, digest = await kept.state(), "29-older", RowsDigest()
    chunk = SnapshotChunk(cell=CELL, snapshot=name, part=0, rows=('["section-of-yesterday",1]',))
    digest.add(chunk.rows)
    whole = manifest_of(state, name, slot=hour_slot(0), parts=1, digest=digest.hexdigest())
    for event in (chunk, replace(whole, version=30, offset=29)):
        await kept.log.publish([LAYOUT.outgoing(event, id=name, source="older", wall_ms=0)])
    kept.broker.delete_before(DECISIONS, 25)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.contradicting, found.state.version) == (True, [], 40)


@pytest.mark.parametrize("left", [30, 20, 12, 1])
async def test_a_lost_tail_is_told_and_the_cell_goes_on_from_the_last_record(left: int) -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, left)
    with pytest.raises(LogTruncated):
        await kept.state()
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.state.offset, found.damage) == (left, left - 1, "")
    assert {m.version for m in found.contradicting} == ({40} if left >= 20 else {20, 40})
    lost = f"Snapshots tell of versions up to 40: {40 - left} decisions at least behind version {left} are given up, "
    lost += "and a job that ended in them runs again."
    assert lost in lines_of(found)
    repaired = await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert repaired.version == left + 1
    assert (await kept.state()).version == left + 1
    assert digest_of(await kept.state()) == digest_of(repaired)
    assert kept.last().effects[1] == LogRepaired(
        by="ada", good_until=left, end=left, snapshots=len(found.contradicting)
    )
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole
    assert (await LiveCheck(kept.log, LAYOUT, CELL).run()).first_violation is None


async def test_a_repaired_log_can_be_folded_from_its_first_record() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 30)
    await repair(kept.log, LAYOUT, await survey(kept.log, LAYOUT, CELL), None, by="ada", wall_ms=0)
    without = Follower(kept.log, LAYOUT, CELL, snapshots=False)
    await without.start()
    await without.catch_up()
    assert digest_of(without.state) == digest_of(await kept.state())
    assert without.state.epoch == folded(kept.decisions[:30]).epoch + 1


@pytest.mark.parametrize("version", [41, 50])
async def test_a_damaged_record_is_left_behind_for_every_reader(version: int) -> None:
    kept = Kept()
    await kept.live()
    kept.forge(version)
    kept.forge(version + 1)
    with pytest.raises(DamagedLog):
        await kept.state()
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.contradicting) == (40, 40, [])
    cut = (
        "A repair gives up offsets 40 to 41, and deletes all before offset 42: a snapshot of version 40 replaces them."
    )
    assert cut in lines_of(found)
    await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    state = await kept.state()
    assert (state.version, state.offset) == (41, 42)
    assert {job: state.jobs[job].status for job in state.jobs} == {
        job: found.state.jobs[job].status for job in found.state.jobs
    }
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole
    assert (await LiveCheck(kept.log, LAYOUT, CELL).run()).first_violation is None


async def test_a_tail_that_was_lost_and_written_over_goes_on_from_before_it() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 30)
    for version in range(41, 56):
        kept.forge(version)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset) == (30, 30)
    assert {m.version for m in found.contradicting} == {40}
    await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (await kept.state()).version == 31


async def test_a_user_without_a_name_can_repair_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the image of the services, whose user is a number."""
    make_nameless(monkeypatch)
    kept = Kept()
    await kept.live(reads_inputs=False)
    kept.broker.cut(DECISIONS, 30)
    found = await look_and_repair(kept.log, LAYOUT, CELL, From.END, yes=True, as_json=False)
    assert found == (False, 31)
    assert "The last good version is 30" in capsys.readouterr().out
    assert [each.by for each in kept.last().effects if isinstance(each, LogRepaired)] == [""]


@pytest.mark.parametrize(("inputs", "at"), [(From.END, "end"), (From.BEGIN, "begin")])
async def test_inputs_that_lost_records_are_read_on_from_where_a_person_says(inputs: From, at: str) -> None:
    kept = Kept()
    await kept.live()
    jobs = LAYOUT.tp("jobs", CELL)
    cursor = kept.broker.partition(jobs).end
    kept.broker.cut(jobs, 2)
    found = await survey(kept.log, LAYOUT, CELL)
    assert {source: loss.kind for source, loss in found.losses.items()} == {"jobs-0": LossKind.BEYOND_END}
    with pytest.raises(NotRepairable, match="jobs-0: say by --inputs"):
        await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    start = {"end": 2, "begin": 0}[at]
    await repair(kept.log, LAYOUT, found, inputs, by="ada", wall_ms=0)
    assert kept.last().effects[2] == InputResumed(input="jobs-0", from_offset=cursor, to_offset=start)
    assert (await kept.state()).inputs["jobs-0"] == start
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


async def test_an_input_that_lost_records_before_any_was_read_is_told_and_read_on_from_where_a_person_says() -> None:
    """Placement fences it."""
    kept = Kept()
    await kept.live()
    state = await kept.state()
    assert "proposals-0" not in state.inputs
    proposals = LAYOUT.tp("proposals", CELL)
    for _ in range(5):
        kept.broker.write_marker(proposals)
    kept.broker.delete_before(proposals, 3)
    found = await survey(kept.log, LAYOUT, CELL)
    assert {source: (loss.kind, loss.next_offset) for source, loss in found.losses.items()} == {
        "proposals-0": (LossKind.DELETED_UNREAD, 0)
    }
    await repair(kept.log, LAYOUT, found, From.BEGIN, by="ada", wall_ms=0)
    assert kept.last().effects[2] == InputResumed(input="proposals-0", from_offset=0, to_offset=3)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


class Beside(MemoryLog):
    """Beside a living writer and a living queueing, which go on right after a question for the end of the log."""

    def __init__(self, kept: Kept, history: History) -> None:
        super().__init__(kept.broker)
        self.kept, self.history, self.is_asked = kept, history, False

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        ends = await super().end_offsets(tps)
        if DECISIONS in tps and not self.is_asked:
            self.is_asked = True
            log = self.kept.log
            await log.publish(outgoing(LAYOUT, self.history.decisions(45))[40:])
            catalogue = await read_catalogue(log, LAYOUT, CELL)
            await write_snapshot(log, LAYOUT, self.history.state, catalogue, writer="s", wall_ms=0)
        return ends


async def test_a_snapshot_that_is_written_during_the_survey_contradicts_nothing() -> None:
    kept = Kept()
    await kept.live(reads_inputs=False)
    found = await survey(Beside(kept, History(5)), LAYOUT, CELL)
    assert found.contradicting == []


async def test_a_repair_beside_a_writer_changes_nothing_is_told_and_can_be_done_again() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 30)
    found = await survey(kept.log, LAYOUT, CELL)
    kept.forge(7)
    ends = {name: kept.broker.partition(LAYOUT.tp(name, CELL)).end for name in ("decisions", "snapshots")}
    with pytest.raises(NotRepairable, match="ends at 31 now: another process writes"):
        await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert {name: kept.broker.partition(LAYOUT.tp(name, CELL)).end for name in ends} == ends
    await repair(kept.log, LAYOUT, await survey(kept.log, LAYOUT, CELL), None, by="ada", wall_ms=0)
    assert (await kept.state()).version >= 31


class WritesMeanwhile(MemoryLog):
    """Another process appends right before, or right behind, the record of the repair."""

    def __init__(self, kept: Kept, *, is_before: bool) -> None:
        super().__init__(kept.broker)
        self.kept, self.is_before = kept, is_before

    async def append(self, message: Outgoing) -> AppendAnswer:
        if self.is_before:
            self.kept.forge(7)
        answer = await super().append(message)
        if not self.is_before:
            self.kept.forge(7)
        return answer


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_writer_that_comes_between_is_told_and_the_repair_can_be_done_again(*, is_before: bool) -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 30)
    found = await survey(kept.log, LAYOUT, CELL)
    with pytest.raises(NotRepairable, match="another process writes"):
        await repair(WritesMeanwhile(kept, is_before=is_before), LAYOUT, found, None, by="ada", wall_ms=0)
    again = await survey(kept.log, LAYOUT, CELL)
    if not again.is_whole:
        await repair(kept.log, LAYOUT, again, None, by="ada", wall_ms=0)
    assert (await kept.state()).version >= 31


@pytest.mark.parametrize("inputs", [From.END, From.BEGIN])
async def test_inputs_that_were_deleted_unread_are_told_and_read_on_from_where_a_person_says(inputs: From) -> None:
    """But for `nodes`, which placement reads on by itself."""
    kept = Kept()
    await kept.live()
    cursors = {}
    for name in ("jobs", "nodes"):
        tp = LAYOUT.tp(name, CELL)
        cursors[name] = kept.broker.partition(tp).end
        for _ in range(5):
            kept.broker.write_marker(tp)
        kept.broker.delete_before(tp, cursors[name] + 2)
    found = await survey(kept.log, LAYOUT, CELL)
    assert {source: loss.kind for source, loss in found.losses.items()} == {"jobs-0": LossKind.DELETED_UNREAD}
    assert "2 were deleted unread" in "".join(lines_of(found))
    await repair(kept.log, LAYOUT, found, inputs, by="ada", wall_ms=0)
    start = cursors["jobs"] + (5 if inputs is From.END else 2)
    assert kept.last().effects[2] == InputResumed(input="jobs-0", from_offset=cursors["jobs"], to_offset=start)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


@pytest.mark.parametrize(
    ("bad", "base"), [((0, 1), 20), ((10,), 20), ((19,), 20), ((20, 21), 40), ((30,), 40), ((39,), 40)]
)
async def test_a_snapshot_behind_the_damage_loses_nothing_that_was_decided_since(
    bad: tuple[int, ...], base: int
) -> None:
    kept = Kept()
    await kept.live()
    before = await kept.state()
    kept.broker.damage(DECISIONS, *bad)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.cut_offset) == (40, bad[0], None)
    assert found.base is not None
    assert (found.base.version, found.contradicting, found.is_whole) == (base, [], False)
    assert digest_of(found.state) == digest_of(before)
    assert f"The snapshot of version {base} at offset {base - 1} is whole" in "".join(lines_of(found))
    repaired = await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (repaired.version, kept.broker.partition(DECISIONS).begin) == (41, base)
    assert kept.last().effects[1] == LogRepaired(by="ada", good_until=40, end=40, snapshots=0)
    assert digest_of(await kept.state()) == digest_of(repaired)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole
    assert (await LiveCheck(kept.log, LAYOUT, CELL).run()).first_violation is None


async def test_a_record_of_the_wrong_chain_in_the_middle_loses_nothing_either() -> None:
    kept = Kept()
    await kept.live()
    at = kept.broker.partition(DECISIONS).records
    kept.forge(11)
    forged = at.pop()
    at[10] = replace_offset(forged, 10)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.cut_offset) == (40, 10, None)
    await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (await kept.state()).version == 41


def replace_offset(record: Record, offset: int) -> Record:
    return Record(record.topic, record.partition, offset, record.key, record.value, record.headers, record.timestamp_ms)


async def test_decisions_that_cannot_be_read_behind_the_newest_snapshot_are_left_behind() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.damage(DECISIONS, 15)
    state = await kept.state()
    for _ in range(3):
        kept.broker.write_marker(DECISIONS)
    kept.broker.damage(DECISIONS, 41)
    with pytest.raises(UnreadableRecords, match="cannot be read at offset 41"):
        await kept.state()
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.cut_offset, found.end) == (40, 15, 41, 43)
    assert digest_of(found.state) == digest_of(state)
    await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert ((await kept.state()).version, kept.broker.partition(DECISIONS).begin) == (41, 43)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


async def test_a_snapshot_of_a_history_that_was_written_over_is_not_believed_behind_a_damage() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 30)
    for version in range(41, 56):
        kept.forge(version)
    kept.broker.damage(DECISIONS, 10)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.cut_offset) == (30, 10, 30)
    assert {m.version for m in found.contradicting} == {40}
    await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (await kept.state()).version == 31


async def test_a_snapshot_at_whose_offset_another_history_reached_its_version_is_not_believed_behind_a_damage() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.cut(DECISIONS, 39)
    kept.forge(40)
    kept.broker.damage(DECISIONS, 10)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.damage_offset, found.cut_offset) == (39, 10, 39)
    assert {m.version for m in found.contradicting} == {40}


async def test_a_log_in_which_another_release_has_gone_on_is_left_as_it_is() -> None:
    """What it has decided since would be given up."""
    kept = Kept()
    await kept.live()
    state = await kept.state()
    kept.broker.write(as_then(outgoing(LAYOUT, History(5).decisions(1), state.chain)[0]))
    end = kept.broker.partition(DECISIONS).end
    with pytest.raises(NotRepairable, match=r"offset 40: .* is of another release"):
        await survey(kept.log, LAYOUT, CELL)
    assert (kept.broker.partition(DECISIONS).begin, kept.broker.partition(DECISIONS).end) == (0, end)


async def test_a_snapshot_that_cannot_be_read_is_passed_over() -> None:
    kept = Kept()
    await kept.live()
    before = await kept.state()
    snapshots = LAYOUT.tp("snapshots", CELL)
    for offset in range(kept.broker.partition(snapshots).end):
        kept.broker.partition(snapshots).damaged = {offset}
        assert digest_of(await kept.state()) == digest_of(before)
        assert (await survey(kept.log, LAYOUT, CELL)).state.version == 40


@pytest.mark.parametrize(("inputs", "start"), [(From.END, 5), (From.BEGIN, 2)])
async def test_an_input_that_cannot_be_read_is_read_on_behind_the_damage_or_at_its_end(
    inputs: From, start: int
) -> None:
    kept = Kept()
    await kept.live()
    jobs = LAYOUT.tp("jobs", CELL)
    cursor = kept.broker.partition(jobs).end
    for _ in range(5):
        kept.broker.write_marker(jobs)
    kept.broker.damage(jobs, cursor, cursor + 1)
    found = await survey(kept.log, LAYOUT, CELL)
    assert {source: loss.kind for source, loss in found.losses.items()} == {"jobs-0": LossKind.UNREADABLE}
    assert f"t.jobs/0 cannot be read at offset {cursor} (" in "".join(lines_of(found))
    with pytest.raises(NotRepairable, match="jobs-0: say by --inputs"):
        await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    await repair(kept.log, LAYOUT, found, inputs, by="ada", wall_ms=0)
    assert kept.last().effects[2] == InputResumed(input="jobs-0", from_offset=cursor, to_offset=cursor + start)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


async def test_what_stands_before_the_damage_of_an_input_is_read_first() -> None:
    """In `nodes` newer records say again what older ones have said."""
    kept = Kept()
    await kept.live()
    cursors = {name: kept.broker.partition(LAYOUT.tp(name, CELL)).end for name in ("jobs", "nodes")}
    for name, cursor in cursors.items():
        for _ in range(5):
            kept.broker.write_marker(LAYOUT.tp(name, CELL))
        kept.broker.damage(LAYOUT.tp(name, CELL), cursor + 2)
    found = await survey(kept.log, LAYOUT, CELL)
    assert "jobs-0: 2 offsets before that are still to be read" in "".join(lines_of(found))
    await repair(kept.log, LAYOUT, found, From.BEGIN, by="ada", wall_ms=0)
    assert kept.last().effects[2:] == (
        InputResumed(input="nodes-0", from_offset=cursors["nodes"], to_offset=cursors["nodes"] + 3),
    )
    again = await survey(kept.log, LAYOUT, CELL)
    with pytest.raises(NotRepairable, match="jobs-0: start the cell's services"):
        await repair(kept.log, LAYOUT, again, From.BEGIN, by="ada", wall_ms=0)
