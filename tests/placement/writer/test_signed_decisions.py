"""A writer signs where its cell file names keys, does not begin where readers would not believe it, and goes on where
a stranger writes into the log of its cell.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.services.placement.app.signing import UNSIGNED, tell_of_unsigned
from fallow.shared.cluster.model.file_in_force import from_effect
from fallow.shared.events.decisions import SIGNATURE_HEADER, Decision
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.operations import ReloadCell
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.missing_keys import TOO_EARLY
from fallow.shared.log.keys.signers import begun_too_early
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.contract.eventually import eventually
from tests.placement.worlds.signed_cells import follower_of, names, process, records, submit, until_folded
from tests.placement.worlds.writers import CELL, LAYOUT, PlacementProcess, SmallTopic, cluster
from tests.signing import NEXT, STRANGERS, WRITERS, public, signed, signed_file, signed_text


@pytest.fixture
def broker() -> MemoryBroker:
    return cluster()


@pytest.fixture
def cell_file(tmp_path: Path) -> Path:
    path = tmp_path / "cell.yaml"
    path.write_text(signed_text(public(WRITERS)))
    return path


async def test_each_record_of_a_writer_carries_its_signature(broker: MemoryBroker, cell_file: Path) -> None:
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    found = await until_folded(broker, cell_file, "job-1")
    await writer.stop()
    assert all(SIGNATURE_HEADER in headers for headers in records(broker))
    assert found.state.skipped == 0


async def test_a_signed_record_that_its_topic_does_not_take_is_made_and_signed_anew_with_less(
    broker: MemoryBroker, cell_file: Path
) -> None:
    jobs = [f"job-{number}" for number in range(9)]
    for job in jobs:
        spec = JobSpec(id=job, tenant="vision", run=ProcessRun(argv=("x" * 2_000,)))
        admitted = JobAdmitted(cell=CELL, spec=spec, submit_ms=0, digest="0" * 32)
        broker.write(LAYOUT.outgoing(admitted, id=job, source="test", wall_ms=0))
    log = SmallTopic(broker)
    writer = PlacementProcess(log, "one", cell_file=cell_file, signing_key=WRITERS)
    await writer.start()
    found = await until_folded(broker, cell_file, *jobs)
    await writer.stop()
    assert log.refused > 0
    assert all(SIGNATURE_HEADER in headers for headers in records(broker))
    assert found.state.skipped == 0


@pytest.mark.parametrize(
    ("key", "why"),
    [(None, "this process has none: see FALLOW_SIGNING_KEY"), (STRANGERS, f"does not name {STRANGERS.public}")],
)
async def test_a_writer_whom_readers_would_not_believe_writes_nothing_and_is_not_ready(
    broker: MemoryBroker, cell_file: Path, key: SigningKey | None, why: str
) -> None:
    writer = process(broker, cell_file, key)
    await writer.start()
    await eventually(lambda: why in writer.health, within_s=15)
    assert records(broker) == []
    await writer.stop()


async def test_a_writer_with_a_retired_key_writes_nothing(broker: MemoryBroker, cell_file: Path) -> None:
    names(cell_file, signed_text(public(NEXT), public(WRITERS, until_version=1)))
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await eventually(lambda: "does not name" in writer.health, within_s=15)
    assert records(broker) == []
    await writer.stop()


async def test_another_process_that_has_a_key_of_the_cell_takes_over_from_one_that_has_none(
    broker: MemoryBroker, cell_file: Path
) -> None:
    without = process(broker, cell_file, None)
    await without.start()
    await eventually(lambda: "FALLOW_SIGNING_KEY" in without.health, within_s=15)
    writer = process(broker, cell_file, WRITERS, "two")
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, cell_file, "job-1")
    for each in (writer, without):
        await each.stop()


async def test_a_writer_goes_on_over_forged_records_of_each_kind_and_counts_them(
    broker: MemoryBroker, cell_file: Path
) -> None:
    writer, log = process(broker, cell_file, WRITERS), MemoryLog(broker)
    await writer.start()
    state = (await until_folded(broker, cell_file)).state
    await eventually(lambda: len(records(broker)) > 0, within_s=15)
    for number, key in enumerate((None, STRANGERS)):
        state = (await follower_of(broker, cell_file)).state
        forged = Decision(cell=CELL, version=state.version + 1, epoch=state.epoch, at_ms=state.at_ms)
        await log.publish(signed(LAYOUT, [forged], key, state.chain))
        await submit(broker, f"job-{number}")
        await until_folded(broker, cell_file, f"job-{number}")
    found = await follower_of(broker, cell_file)
    assert found.state.skipped == 2
    assert writer.metric("fallow_forged_decisions_total") == 2
    assert writer.health == ""
    await writer.stop()


async def test_a_reload_after_which_the_key_of_the_writer_is_none_of_the_cells_ends_its_writing(
    broker: MemoryBroker, cell_file: Path
) -> None:
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    before = await until_folded(broker, cell_file, "job-1")
    names(cell_file, signed_text(public(NEXT), public(WRITERS, until_version=before.state.version)))
    reload = ReloadCell(cell=CELL, by="operator")
    await MemoryLog(broker).publish([LAYOUT.outgoing(reload, id="r", source="test", wall_ms=0)])
    await eventually(lambda: "does not name" in writer.health, within_s=15)
    assert (await follower_of(broker, cell_file)).state.version == before.state.version
    await writer.stop()


async def test_a_writer_signs_from_the_reload_on_that_brings_the_first_key(
    broker: MemoryBroker, cell_file: Path
) -> None:
    names(cell_file, signed_text())
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, cell_file, "job-1")
    assert not any(SIGNATURE_HEADER in headers for headers in records(broker))
    names(cell_file, signed_text(public(WRITERS), from_version=1_000))
    reload = ReloadCell(cell=CELL, by="operator")
    await MemoryLog(broker).publish([LAYOUT.outgoing(reload, id="r", source="test", wall_ms=0)])
    jobs = ["job-1"]
    while SIGNATURE_HEADER not in records(broker)[-1]:  # the file is read beside other work
        assert len(jobs) < 100, "it never signs"
        jobs.append(f"job-{10 * len(jobs)}")
        await submit(broker, jobs[-1])
        await until_folded(broker, cell_file, *jobs)
    await writer.stop()


async def test_a_reload_does_not_begin_signatures_at_a_version_that_is_written_already(
    broker: MemoryBroker, cell_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names(cell_file, signed_text())
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    written = (await until_folded(broker, cell_file, "job-1")).state.version
    names(cell_file, signed_text(public(WRITERS), from_version=written))
    reload = ReloadCell(cell=CELL, by="operator")
    await MemoryLog(broker).publish([LAYOUT.outgoing(reload, id="r", source="test", wall_ms=0)])
    refusals = writer.context.telemetry.reloads.labels("refused")
    await eventually(lambda: refusals._value.get() == 1, within_s=15)
    said = "".join(capsys.readouterr())
    assert f"signing: from_version: {written} is written already" in said
    names(cell_file, signed_text())
    await submit(broker, "job-22")
    found = await until_folded(broker, cell_file, "job-1", "job-22")
    assert found.state.cell_file is not None
    assert from_effect(found.state.cell_file).cell(CELL).signing is None
    await writer.stop()


@pytest.mark.parametrize("below_the_end", [0, 1, 2])
async def test_a_process_whose_file_asks_for_signatures_of_what_is_written_already_takes_no_cell_over(
    broker: MemoryBroker, cell_file: Path, below_the_end: int
) -> None:
    """It would write behind what it believes itself: a second history, beside the one that all others read."""
    names(cell_file, signed_text())
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    for number in range(3):
        await submit(broker, f"job-{number}")
        await until_folded(broker, cell_file, f"job-{number}")
    await writer.stop()
    version, before = (await follower_of(broker, cell_file)).state.version, len(records(broker))
    names(cell_file, signed_text(public(WRITERS), from_version=version - below_the_end))
    other = process(broker, cell_file, WRITERS, "two")
    await other.start()
    await submit(broker, "job-new")
    await eventually(lambda: f"{cell_file} {TOO_EARLY}" in other.health)
    await other.stop()
    assert len(records(broker)) == before
    names(cell_file, signed_text())
    again = process(broker, cell_file, WRITERS, "three")
    await again.start()
    await until_folded(broker, cell_file, "job-0", "job-1", "job-2", "job-new")
    await again.stop()


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        (None, 10, True),
        (None, 11, False),
        (8, 9, False),
        (8, 8, False),
        (8, 7, True),
        (20, 10, True),
        (20, 11, False),
        (8, None, False),
        (None, None, False),
    ],
)
def test_signatures_begin_at_a_version_to_come_unless_they_have_begun(
    before: int | None, after: int | None, is_refused: bool
) -> None:
    old, new = (
        signed_file() if each is None else signed_file(public(WRITERS), from_version=each) for each in (before, after)
    )
    assert (begun_too_early(old.cell(CELL), new.cell(CELL), version=10) is not None) == is_refused


def test_a_process_whose_cell_has_no_keys_says_so_at_its_start(
    broker: MemoryBroker, cell_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed_by = process(broker, cell_file, WRITERS)
    tell_of_unsigned(signed_by.context, load_cell_file(cell_file))
    names(cell_file, signed_text())
    tell_of_unsigned(signed_by.context, load_cell_file(cell_file))
    said = "".join(capsys.readouterr())
    assert said.count(UNSIGNED) == 1


def test_no_text_of_the_process_shows_the_private_key(broker: MemoryBroker, cell_file: Path) -> None:
    settings = process(broker, cell_file, WRITERS).context.settings
    private = WRITERS.text.partition(":")[2]
    assert private not in repr(settings) + str(settings) + settings.model_dump_json() + repr(WRITERS)


async def test_a_standby_that_could_not_take_over_is_not_ready_beside_a_writer_that_is(
    broker: MemoryBroker, cell_file: Path
) -> None:
    writer, standby = process(broker, cell_file, WRITERS), process(broker, cell_file, None, "two")
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, cell_file, "job-1")
    await standby.start()
    await eventually(lambda: "FALLOW_SIGNING_KEY" in standby.health, within_s=15)
    assert writer.health == ""
    for each in (standby, writer):
        await each.stop()


async def test_a_process_whose_copy_of_the_cell_file_lacks_the_new_key_does_not_write_over_what_it_proves(
    broker: MemoryBroker, cell_file: Path, tmp_path: Path
) -> None:
    """It has the old key, which is not retired yet: readers would take its decisions for a fork of the log."""
    older = tmp_path / "older.yaml"
    names(older, signed_text(public(WRITERS)))
    first = process(broker, cell_file, WRITERS)
    await first.start()
    await submit(broker, "job-1")
    await until_folded(broker, cell_file, "job-1")
    names(cell_file, signed_text(public(WRITERS), public(NEXT)))
    reload = ReloadCell(cell=CELL, by="operator")
    await MemoryLog(broker).publish([LAYOUT.outgoing(reload, id="r", source="test", wall_ms=0)])
    await submit(broker, "job-22")
    await until_folded(broker, cell_file, "job-1", "job-22")
    await first.stop()
    second = process(broker, cell_file, NEXT, "two")
    await second.start()
    await submit(broker, "job-333")
    await until_folded(broker, cell_file, "job-333")
    await second.stop()
    before = len(records(broker))
    late = process(broker, older, WRITERS, "three")
    await late.start()
    await eventually(lambda: "it is an older copy" in late.health, within_s=15)
    assert len(records(broker)) == before
    await late.stop()


async def test_a_process_that_lacks_the_key_with_which_the_cell_began_does_not_begin_it_anew(
    broker: MemoryBroker, cell_file: Path
) -> None:
    first = process(broker, cell_file, WRITERS)
    await first.start()
    await submit(broker, "job-1")
    await until_folded(broker, cell_file, "job-1")
    await first.stop()
    names(cell_file, signed_text(public(NEXT)))
    before = len(records(broker))
    anew = process(broker, cell_file, NEXT, "two")
    await anew.start()
    await eventually(lambda: "may lack the key with which the cell began" in anew.health, within_s=15)
    assert len(records(broker)) == before
    await anew.stop()


async def test_a_cell_into_whose_log_a_stranger_wrote_first_begins_once_a_person_says_so(
    broker: MemoryBroker, cell_file: Path
) -> None:
    stranger = Decision(cell=CELL, version=1, epoch=1, at_ms=0)
    await MemoryLog(broker).publish(signed(LAYOUT, [stranger], STRANGERS))
    waits = process(broker, cell_file, WRITERS)
    await waits.start()
    await eventually(lambda: f"FALLOW_BEGIN_CELLS={CELL}" in waits.health, within_s=15)
    await waits.stop()
    begins = PlacementProcess(
        MemoryLog(broker), "two", cell_file=cell_file, signing_key=WRITERS, begin_cells=f"other,{CELL}"
    )
    await begins.start()
    await submit(broker, "job-1")
    assert "job-1" in (await until_folded(broker, cell_file, "job-1")).state.jobs
    await begins.stop()


async def test_what_a_thief_of_a_retired_key_writes_keeps_no_writer_from_beginning(
    broker: MemoryBroker, cell_file: Path
) -> None:
    """The cell file in force still names the key as one that writes: it is retired by the file of the process."""
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    state = (await until_folded(broker, cell_file, "job-1")).state
    await writer.stop()
    state = (await follower_of(broker, cell_file)).state
    names(cell_file, signed_text(public(NEXT), public(WRITERS, until_version=state.version)))
    stolen = Decision(cell=CELL, version=state.version + 1, epoch=state.epoch, at_ms=state.at_ms)
    await MemoryLog(broker).publish(signed(LAYOUT, [stolen], WRITERS, state.chain))
    anew = process(broker, cell_file, NEXT, "two")
    await anew.start()
    await submit(broker, "job-22")
    await until_folded(broker, cell_file, "job-22")
    await anew.stop()
