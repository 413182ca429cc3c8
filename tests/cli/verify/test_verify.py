from __future__ import annotations

import dataclasses
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.cli.cell.archive import write_archive
from fallow.cli.log.file import LINE_CHARS_MAX, LogFileError, write_line, written_in_order
from fallow.cli.verify.verification import DiaryError, join, verify_file
from fallow.cli.verify.verify import LogCheck, Verification
from fallow.cli.verify.verify_command import tell
from fallow.shared.cluster.checks.audit import ledger_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import JobFinished, JobRunning, QuotaSet
from fallow.shared.events.operations import Quota
from fallow.shared.kept_folders import DIARIES
from fallow.shared.log.port import Record
from fallow.shared.runtime.files.folder_format import take_folder
from tests.cli.worlds.logs import LogWriter, an_honest_log, enqueued, node, place, started

Exported = Callable[[list[Record]], Path]


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    def export(records: list[Record]) -> Path:
        path = tmp_path / "log.jsonl.gz"
        with written_in_order(path) as output:
            for record in records:
                write_line(output, record, len(an_honest_log().records))
        return path

    return export


def check(records: list[Record]) -> Verification:
    found = LogCheck(CellState("main"))
    for record in records:
        found.take(record)
    found.finish()
    return found.result()


def the_offence(records: list[Record]) -> tuple[int | None, int, str]:
    violation = check(records).first_violation
    assert violation is not None
    return (violation.offset, violation.version, violation.invariant)


def test_an_honest_log_passes_and_its_figures_are_told() -> None:
    found = check(an_honest_log().records)
    assert (found.ok, found.from_version, found.to_version) == (True, 0, 9)
    assert (found.records, found.skipped, found.checks) == (10, 1, 20)
    assert found.first_violation is None


def test_the_json_object_has_exactly_its_keys() -> None:
    keys = "ok from_version to_version records skipped checks first_violation forged gaps gaps_at_end"
    records = an_honest_log().records
    assert list(check(records).as_json()) == keys.split()
    with_diaries = dataclasses.replace(check(records), nodes_not_checked=("node-1",))
    assert list(with_diaries.as_json()) == [*keys.split(), "nodes_not_checked"]
    assert list(check(records[1:]).as_json()["first_violation"]) == ["offset", "version", "invariant", "text"]


def test_an_exported_log_reads_back_as_it_was(exported: Exported) -> None:
    assert verify_file(exported(an_honest_log().records)) == check(an_honest_log().records)


def test_one_changed_byte_of_one_value_is_found() -> None:
    records = an_honest_log().records
    value = (records[4].value or b"").replace(b"JobRunning", b"JobRunnins")
    assert the_offence([*records[:4], replace(records[4], value=value), *records[5:]]) == (4, 4, "chain")


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize(
    ("byte", "other"),
    [(b"main", b"mail"), (b'"version":', b'"version":1'), (b'"epoch":', b'"epoch":9'), (b"{", b"[")],
    ids=["its cell", "its version", "its epoch", "its form"],
)
def test_a_change_of_any_record_is_found_where_it_is(number: int, byte: bytes, other: bytes) -> None:
    records = an_honest_log().records
    value = (records[number].value or b"").replace(byte, other, 1)
    found = check([*records[:number], replace(records[number], value=value), *records[number + 1 :]]).first_violation
    assert found is not None
    assert found.offset == number


def test_a_record_that_was_never_a_decision_is_skipped() -> None:
    log = an_honest_log()
    stranger = Record("t.decisions", 0, len(log.records), None, b"hello", (), 0)
    assert check([*log.records, stranger]).skipped == 2


def test_a_changed_value_that_still_reads_well_breaks_the_chain() -> None:
    records = an_honest_log().records
    value = (records[4].value or b"").replace(b'"at_ms":5', b'"at_ms":6')
    assert the_offence([*records[:4], replace(records[4], value=value), *records[5:]]) == (4, 4, "chain")


def test_a_dropped_record_is_found() -> None:
    records = an_honest_log().records
    assert the_offence([*records[:3], *records[4:]]) == (4, 3, "versions")


def test_a_dropped_record_is_found_when_the_rest_is_numbered_anew() -> None:
    records = an_honest_log().records
    rest = [replace(record, offset=record.offset - 1) for record in records[4:]]
    assert the_offence([*records[:3], *rest]) == (3, 3, "versions")


def test_an_offset_without_a_record_is_no_offence_and_is_told() -> None:
    """The end of a transaction takes one. What all readers would skip may be missing there."""
    records = an_honest_log().records
    assert records[5].offset == 5
    found = check([*records[:5], *records[6:]])
    assert (found.ok, found.gaps, found.skipped) == (True, 1, 0)


def a_beaten_record_behind(records: list[Record], offset: int) -> list[Record]:
    """These and a record that readers skip: the stale one of the honest log, once more."""
    return [*records, replace(an_honest_log().records[5], offset=offset)]


def test_decisions_that_may_be_missing_behind_the_last_one_are_told(exported: Exported) -> None:
    """Nothing behind them says that they were there, nor that a transaction has left the offset."""
    records = an_honest_log().records
    cut = a_beaten_record_behind(records[:-1], len(records))
    found = check(cut)
    assert (found.ok, found.to_version, found.gaps, found.gaps_at_end) == (True, 8, 0, 1)
    whole = check(a_beaten_record_behind(records, len(records)))
    assert (whole.ok, whole.to_version, whole.gaps, whole.gaps_at_end) == (True, 9, 0, 0)


def test_an_offset_without_a_record_is_told_as_one_at_the_end_until_a_decision_follows() -> None:
    records = an_honest_log().records
    log = LogCheck(CellState("main"))
    for record in [*records[:5], records[6]]:
        log.take(record)
    later = [replace(record, offset=record.offset + 2) for record in records[7:]]
    for record in a_beaten_record_behind([], 8):
        log.take(record)
    assert (log.gaps, log.gaps_at_end) == (1, 1)
    log.take(later[0])
    assert (log.gaps, log.gaps_at_end) == (2, 0)


def test_a_record_behind_the_end_that_was_read_to_leaves_each_offset_to_be_told_once() -> None:
    """A reader that follows a log reads to an end behind which nothing stands, and goes on when something does."""
    log = LogCheck(CellState("main"))
    for record in an_honest_log().records[:5]:
        log.take(record)
    log.nothing_until(7)
    assert (log.gaps, log.gaps_at_end) == (0, 2)
    for record in a_beaten_record_behind([], 7):
        assert log.take(record) is None
    assert (log.gaps, log.gaps_at_end) == (0, 2)


def test_an_offence_that_is_passed_over_proves_nothing_of_the_offsets_before_it() -> None:
    """No decision tells that none is missing there, until one follows."""
    records, log = an_honest_log().records, LogCheck(CellState("main"))
    for record in records:
        log.take(record)
    [beaten] = a_beaten_record_behind([], len(records) + 1)
    offence = log.take(replace(beaten, value=(beaten.value or b"") + b" "))
    assert offence is not None
    assert offence.invariant == "chain"
    assert log.pass_over()
    assert (log.gaps, log.gaps_at_end) == (0, 1)


def test_what_may_be_missing_at_the_end_is_told_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    tell(check(a_beaten_record_behind(an_honest_log().records[:-1], 10)), "file")
    assert "1 offset behind the last decision holds no record: ends of transactions, aborted" in capsys.readouterr().out


def test_a_decision_that_was_dropped_before_an_offset_without_a_record_is_found() -> None:
    records = an_honest_log().records
    later = [replace(record, offset=record.offset + 3) for record in records[4:]]
    assert the_offence([*records[:3], *later]) == (7, 3, "versions")


def test_a_dropped_last_record_of_a_file_is_found(exported: Exported) -> None:
    found = verify_file(exported(an_honest_log().records[:-1])).first_violation
    assert found is not None
    assert found.text == "the log should end at offset 10, and what was read ends at 9"


def test_reordered_records_are_found() -> None:
    records = an_honest_log().records
    swapped = [*records[:3], records[4], records[3], *records[5:]]
    assert the_offence(swapped) == (4, 3, "versions")
    assert the_offence([*records[:6], records[2], *records[6:]]) == (2, 5, "offsets")
    renumbered = [replace(record, offset=offset) for offset, record in enumerate(swapped)]
    assert the_offence(renumbered) == (3, 3, "versions")


def test_a_device_that_is_given_twice_is_found_in_a_well_chained_log() -> None:
    log = an_honest_log()
    log.write_unchecked(started("third", place(1, 0, 1, 2, 3, 4, 5, 6, 7)))
    assert the_offence(log.records) == (10, 10, "I1")


def test_a_job_that_ends_twice_is_found() -> None:
    log = an_honest_log()
    log.write_unchecked(JobFinished(job="first", attempt=1))
    assert the_offence(log.records) == (10, 10, "I2")


def test_half_a_gang_is_found() -> None:
    log = an_honest_log()
    log.write(enqueued("fourth", 1, workers=2))
    log.write_unchecked(started("fourth", place(1, 4)))
    assert the_offence(log.records) == (11, 11, "I3")


def test_use_above_the_limit_is_found() -> None:
    log = an_honest_log()
    log.write(node(2))
    log.write(enqueued("fourth", 4), QuotaSet(quota=Quota(tenant="vision", gpu_type="gpu", limit_milli=9_000)))
    log.write_unchecked(started("fourth", place(2, 0, 1, 2, 3)))
    assert the_offence(log.records) == (12, 12, "I4")


def test_an_illegal_transition_is_found() -> None:
    log = an_honest_log()
    log.write_unchecked(JobRunning(job="third", attempt=1))
    assert the_offence(log.records) == (10, 10, "transitions")


def test_after_the_first_offence_nothing_more_is_taken() -> None:
    records = an_honest_log().records
    assert check([*records[:3], *records[4:]]).records == 4


def test_the_versions_are_told_that_the_records_made_and_not_the_state_before_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = check(an_honest_log().records)
    behind_a_snapshot = dataclasses.replace(found, from_version=9, to_version=10, records=1, skipped=0)
    nothing_behind_it = dataclasses.replace(behind_a_snapshot, to_version=9, records=0)
    for each in (found, behind_a_snapshot, nothing_behind_it):
        tell(each, "a log")
    told = [line for line in capsys.readouterr().out.splitlines() if "version" in line]
    assert told == [
        "versions 1 to 9: 10 records, 1 skipped",
        "versions 10 to 10: 1 record, 0 skipped",
        "no version behind 9: 0 records, 0 skipped",
    ]


def test_a_check_can_begin_at_a_state_and_finds_what_comes_after() -> None:
    log = an_honest_log()
    begun = LogCheck(log.state)
    log.records.clear()
    assert begun.finish() is None
    assert ledger_of(log.state).compare(log.state) is None
    assert begun.result().from_version == 9


def line(job: str, node_number: int, event: str, *devices: int) -> str:
    said = {"node": f"node-{node_number}", "job": job, "attempt": 1, "event": event, "devices": devices}
    return json.dumps({**said, "gpu_milli": 1000, "cell_ms": 0, "wall_ms": 0}) + "\n"


HONEST = {
    "node-0": [
        line("first", 0, "started", 0, 1),
        line("second", 0, "started", 2, 3, 4, 5),
        line("first", 0, "ended"),
    ],
    "node-1": [line("second", 1, "started", 0, 1, 2, 3)],
}


def diaries(folder: Path, lines: dict[str, list[str]]) -> Path:
    (folder / "diaries").mkdir()
    for name, written in lines.items():
        (folder / "diaries" / f"{name}.jsonl").write_text("".join(written), encoding="utf-8")
    return folder


def test_honest_diaries_pass(exported: Exported, tmp_path: Path) -> None:
    assert verify_file(exported(an_honest_log().records), [diaries(tmp_path, HONEST)]).ok


def test_a_line_that_a_dying_node_did_not_finish_says_nothing(exported: Exported, tmp_path: Path) -> None:
    torn = {**HONEST, "node-1": [*HONEST["node-1"], '{"node":"no']}
    assert verify_file(exported(an_honest_log().records), [diaries(tmp_path, torn)]).ok


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            {**HONEST, "node-1": HONEST["node-1"] * 2},
            "attempt 1 of job second on node node-1 was begun twice",
        ),
        (
            {**HONEST, "node-0": [HONEST["node-0"][0], HONEST["node-0"][2]]},
            "attempt 1 of job second on node node-0 was confirmed and its node never began it",
        ),
        (
            {**HONEST, "node-1": [*HONEST["node-1"], line("third", 1, "started", 4)]},
            "attempt 1 of job third on node node-1 was begun and never ordered",
        ),
    ],
    ids=["a start twice", "a start missing", "a start without an order"],
)
def test_a_diary_that_differs_from_the_orders_is_found(
    exported: Exported, tmp_path: Path, lines: dict[str, list[str]], text: str
) -> None:
    found = verify_file(exported(an_honest_log().records), [diaries(tmp_path, lines)]).first_violation
    assert found is not None
    assert (found.offset, found.invariant, found.text) == (None, "I6", text)


def test_runs_of_nodes_without_a_diary_there_are_no_offence_and_told(exported: Exported, tmp_path: Path) -> None:
    path = exported(an_honest_log().records)
    folders = []
    for name in ("node-0", "node-1"):
        (tmp_path / name).mkdir()
        folders.append(diaries(tmp_path / name, {"main-0-of-1": HONEST[name]}))
    one = verify_file(path, folders[:1])
    assert (one.ok, one.nodes_not_checked) == (True, ("node-1",))
    both = verify_file(path, folders)
    assert (both.ok, both.nodes_not_checked, both.checks) == (True, (), one.checks + len(HONEST["node-1"]))
    twice = verify_file(path, [*folders, folders[0] / "diaries"])
    assert twice == both


def test_what_one_diary_may_have_forgotten_is_missed_of_the_nodes_of_another(
    exported: Exported, tmp_path: Path
) -> None:
    log = an_honest_log()
    first, second, ended = HONEST["node-0"]
    assert second
    lines = {"node-0": [first, ended], "node-1": [horizon(log.state.version, log.state.cell), *HONEST["node-1"]]}
    found = verify_file(exported(log.records), [diaries(tmp_path, lines)]).first_violation
    assert found is not None
    assert found.text == "attempt 1 of job second on node node-0 was confirmed and its node never began it"


def test_the_diary_of_another_cell_is_not_held_against_this_one(exported: Exported, tmp_path: Path) -> None:
    lines = {"main-0-of-1": HONEST["node-0"] + HONEST["node-1"], "other-0-of-1": [line("third", 5, "started", 4)]}
    found = verify_file(exported(an_honest_log().records), [diaries(tmp_path, lines)])
    assert (found.ok, found.nodes_not_checked) == (True, ())


def horizon(version: int, cell: str) -> str:
    return json.dumps({"forgotten_version": version, "cell": cell}, separators=(",", ":")) + "\n"


def test_runs_that_a_diary_may_have_forgotten_are_not_missed(exported: Exported, tmp_path: Path) -> None:
    log = an_honest_log()
    lines = {"nodes": [horizon(log.state.version, log.state.cell), *HONEST["node-0"][:1], *HONEST["node-1"]]}
    assert verify_file(exported(log.records), [diaries(tmp_path, lines)]).ok


def test_nor_are_they_where_another_file_goes_on_with_the_node(exported: Exported, tmp_path: Path) -> None:
    log = an_honest_log()
    first, _, ended = HONEST["node-0"]
    lines = {"a": [horizon(log.state.version, log.state.cell), first], "b": [ended], "c": HONEST["node-1"]}
    assert verify_file(exported(log.records), [diaries(tmp_path, lines)]).ok


def test_of_several_cells_all_nodes_that_were_not_checked_are_named() -> None:
    told = check(an_honest_log().records)
    one, other = (dataclasses.replace(told, nodes_not_checked=nodes) for nodes in (("a",), ("b",)))
    assert join([one, other]).nodes_not_checked == ("a", "b")
    assert join([told, other]).nodes_not_checked == ("b",)
    assert join([one, told]).nodes_not_checked == ("a",)
    assert join([told, told]).nodes_not_checked is None


@pytest.mark.parametrize(("version", "cell"), [(3, None), (10**6, "another-cell")])
def test_a_run_behind_what_was_forgotten_is_missed(
    exported: Exported, tmp_path: Path, version: int, cell: str | None
) -> None:
    log = an_honest_log()
    lines = {"nodes": [horizon(version, cell or log.state.cell), *HONEST["node-0"][:1], *HONEST["node-1"]]}
    found = verify_file(exported(log.records), [diaries(tmp_path, lines)]).first_violation
    assert found is not None
    assert "its node never began it" in found.text


@pytest.mark.parametrize(("name", "what"), [("main-0-of-1", ""), ("log", "is no diary: ")])
def test_an_unreadable_diary_line_is_named_and_what_is_no_diary(
    name: str, what: str, exported: Exported, tmp_path: Path
) -> None:
    folder = diaries(tmp_path, {name: ["{}\n"]})
    with pytest.raises(DiaryError, match=rf"{name}\.jsonl: {what}line 1: node: is missing"):
        verify_file(exported(an_honest_log().records), [folder])


def test_a_folder_that_is_none_of_diaries_is_refused(exported: Exported, tmp_path: Path) -> None:
    words = ["verify", "--file", str(exported(an_honest_log().records)), "--diaries"]
    (tmp_path / "other").mkdir()
    done = CliRunner().invoke(app, [*words, str(tmp_path / "other")])
    assert isinstance(done.exception, DiaryError)
    assert str(done.exception) == f"--diaries {tmp_path / 'other'}: holds no diary (*.jsonl), nor a folder `diaries`"
    assert CliRunner().invoke(app, [*words, str(diaries(tmp_path, {}))]).exit_code == 0
    (tmp_path / "executor").mkdir()
    take_folder("FALLOW_DIARY_DIR", tmp_path / "executor", DIARIES)
    assert CliRunner().invoke(app, [*words, str(tmp_path / "executor")]).exit_code == 0, "nothing has run there yet"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "dangling", "circle"])
def test_what_is_no_file_among_the_diaries_is_one_line(exported: Exported, tmp_path: Path, kind: str) -> None:
    folder = diaries(tmp_path, {"node-0": HONEST["node-0"]})
    odd = folder / "diaries" / "odd.jsonl"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "folder":
        odd.mkdir()
    else:
        odd.symlink_to({"device": Path("/dev/zero"), "dangling": tmp_path / "nowhere", "circle": odd}[kind])
    with pytest.raises(DiaryError, match=r"odd\.jsonl: cannot be read: "):
        verify_file(exported(an_honest_log().records), [folder])


def test_a_diary_line_with_what_is_no_json_in_an_unknown_field_is_named(exported: Exported, tmp_path: Path) -> None:
    line = HONEST["node-0"][0].rstrip()
    folder = diaries(tmp_path, {"main-0-of-1": [line[:-1] + ',"later":NaN}\n']})
    with pytest.raises(DiaryError, match=r"main-0-of-1\.jsonl: line 1: is no JSON"):
        verify_file(exported(an_honest_log().records), [folder])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{}", "offset: is missing"),
        ('{"offset": -5, "value": null, "headers": []}', "offset: must be at least 0 (got -5)"),
        ('{"offset": 1e999, "value": null, "headers": []}', "offset: must be a whole number (got no finite number)"),
        ('{"offset": 0, "value": "€", "headers": []}', "value: must be base64 (got €)"),
        ('{"offset": 0, "value": null, "headers": [[1, 2, 3]]}', "headers[0][0]: must be text (got 1)"),
        ("[" * 100_000, "is nested in too many levels"),
    ],
)
def test_a_line_of_a_file_that_is_no_log_is_named_with_field_value_and_rule(
    tmp_path: Path, line: str, told: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(LogFileError) as raised:
        verify_file(path)
    assert str(raised.value).startswith(f"{path}: line 1: is no record of an exported log: {told}")


def test_the_file_of_a_cell_is_told_from_a_log(tmp_path: Path) -> None:
    path = tmp_path / "cell.gz"
    write_archive(path, CellState(cell="cell-a"), ())
    with pytest.raises(LogFileError) as raised:
        verify_file(path)
    assert str(raised.value) == f"{path}: is an exported cell, and no log: fallow snapshot import reads it"


def test_a_writer_of_a_test_log_continues_it() -> None:
    log = LogWriter()
    log.write(node(0))
    assert log.state.nodes["node-0"].gpus_free == 8


def test_a_file_without_a_decision_is_no_checked_log(tmp_path: Path) -> None:
    odd, path = replace(an_honest_log().records[0], headers=(("ce_type", b"odd"),), value=b"{}"), tmp_path / "log.jsonl"
    with written_in_order(path) as output:
        write_line(output, odd, 1)
    with pytest.raises(LogFileError, match="holds no decision: nothing was checked"):
        verify_file(path)


def test_a_line_longer_than_any_record_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(b"x" * (LINE_CHARS_MAX + 1)))
    with pytest.raises(LogFileError, match=f"line 1: is longer than {LINE_CHARS_MAX} characters"):
        verify_file(path)
