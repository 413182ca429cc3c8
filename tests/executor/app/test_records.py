"""What nodes say, as records: few for many words, and no node's order is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.records import Said, as_records, by_node, in_parts
from fallow.shared.events.base import LARGEST_INTEGER, TEXT_CHARACTERS_MAX
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import WORKERS_MAX, ObservedRun, RunStatus
from fallow.shared.events.nodes import RUN_WORDS_MAX, NodeReport, RunStatusUpdate
from fallow.shared.log.port import RECORD_BYTES_MAX
from tests.executor.worlds.cells import CELL, each_said
from tests.hypothesis_profile import reaches


def word(seq: int, node: str = "node-1", text: str = "") -> RunStatusUpdate:
    return RunStatusUpdate(
        node=node, boot="boot-1", seq=seq, job=f"job-{seq}", attempt=1, status=RunStatus.FAILED, exit_code=1, text=text
    )


def report(seq: int, node: str = "node-1") -> NodeReport:
    return NodeReport(cell=CELL, node=node, boot="boot-1", seq=seq)


def in_short(said: Iterable[Said]) -> list[str]:
    """One record: `RunsReported 1 2`, `NodeReport 3`."""
    return [
        " ".join([record.__class__.__name__, *(str(each.seq) for each in each_said(record))])
        for record in as_records(CELL, said)
    ]


def test_the_words_of_many_runs_are_one_record() -> None:
    assert in_short([word(1), word(2, "node-2"), word(3)]) == ["RunsReported 1 2 3"]


def test_a_word_goes_past_what_other_nodes_say_meanwhile() -> None:
    said: list[Said] = [word(1), report(2, "node-2"), word(3), report(4, "node-3")]
    assert in_short(said) == ["RunsReported 1 3", "NodesReported 2 4"]


def test_a_word_never_goes_past_what_its_own_node_said() -> None:
    said: list[Said] = [report(1), word(2), word(3, "node-2"), report(4), word(5), word(6, "node-2")]
    assert in_short(said) == ["NodeReport 1", "RunsReported 2 3", "NodeReport 4", "RunsReported 5 6"]


def test_the_reports_of_many_nodes_are_one_record() -> None:
    said: list[Said] = [report(1), report(2, "node-2"), word(3, "node-2"), report(4, "node-3")]
    assert in_short(said) == ["NodesReported 1 2 4", "RunsReported 3"]


def test_a_report_never_goes_past_what_its_own_node_said() -> None:
    said: list[Said] = [report(1), word(2, "node-2"), report(3, "node-2"), report(4, "node-3")]
    assert in_short(said) == ["NodeReport 1", "RunsReported 2", "NodesReported 3 4"]


def test_nothing_said_is_no_record() -> None:
    assert in_short([]) == []


def test_a_record_holds_no_more_words_than_its_class_allows() -> None:
    records = as_records(CELL, [word(seq) for seq in range(RUN_WORDS_MAX + 1)])
    assert [len(each_said(record)) for record in records] == [RUN_WORDS_MAX, 1]


def test_long_texts_make_more_records_and_none_that_is_too_large() -> None:
    records = as_records(CELL, [word(seq, text="\0" * 500) for seq in range(200)])
    assert sum(len(each_said(record)) for record in records) == 200
    assert max(len(encode(record)) for record in records) <= 200_000


def of_node(said: Sequence[Said], node: str) -> list[int]:
    return [each.seq for each in said if each.node == node]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(("node-1", "node-2", "node-3"))), max_size=30))
def test_all_is_said_and_each_node_in_its_own_order(kinds: list[tuple[bool, str]]) -> None:
    said: list[Said] = [word(seq, node) if is_word else report(seq, node) for seq, (is_word, node) in enumerate(kinds)]
    records = list(as_records(CELL, said))
    reaches("several words stand in one record, and others in another one", 1 < len(records) < len(said))
    heard = [each for record in records for each in each_said(record)]
    nodes = ("node-1", "node-2", "node-3")
    assert [of_node(heard, node) for node in nodes] == [of_node(said, node) for node in nodes]


RUNS = st.builds(
    lambda chars, text, ends: ObservedRun(
        job="j" * chars,
        attempt=LARGEST_INTEGER,
        status=RunStatus.FAILED if ends else RunStatus.RUNNING,
        exit_code=-64 if ends else None,
        text=text if ends else "",
        rank=WORKERS_MAX,
        turn=LARGEST_INTEGER,
    ),
    st.sampled_from((1, 128)),
    st.sampled_from(("", "\0" * TEXT_CHARACTERS_MAX, "\U0001f9ea" * TEXT_CHARACTERS_MAX)),
    st.booleans(),
)


@given(st.lists(RUNS, max_size=4), st.sampled_from((0, 1, 500, 3_000)), st.sampled_from((0, 64)))
def test_whatever_runs_a_node_has_its_reports_tell_them_all_in_records_that_the_log_takes(
    few: list[ObservedRun], times: int, devices: int
) -> None:
    runs, failed = few * times, tuple(range(devices))
    parts = list(in_parts(runs))
    reaches("runs of a node stand in several parts", len(parts) > 1)
    assert [run for part in parts for run in part] == runs
    reports = [
        NodeReport(cell=CELL, node="n", boot="b", seq=seq, observed=part, failed_devices=failed)
        for seq, part in enumerate(parts)
    ]
    records = as_records(CELL, [*reports, *(replace(each, node="m") for each in reports)])
    assert max(len(encode(record)) for record in records) <= RECORD_BYTES_MAX // 2


def test_failed_devices_count_for_the_size_of_a_record_of_reports() -> None:
    reports = [replace(report(seq, f"node-{seq}"), failed_devices=tuple(range(1_024))) for seq in range(1_000)]
    assert max(len(encode(record)) for record in as_records(CELL, reports)) <= RECORD_BYTES_MAX // 2


def test_by_node_no_record_has_words_of_two_nodes_and_each_keeps_its_order() -> None:
    said: list[Said] = [
        word(1),
        word(2, "node-2"),
        report(3, "node-2"),
        word(4),
        word(5, "node-2"),
        report(6, "node-3"),
    ]
    found = [
        (record.__class__.__name__, {each.node for each in each_said(record)}, [each.seq for each in each_said(record)])
        for record in by_node(CELL, said)
    ]
    assert found == [
        ("RunsReported", {"node-1"}, [1, 4]),
        ("RunsReported", {"node-2"}, [2]),
        ("NodeReport", {"node-2"}, [3]),
        ("RunsReported", {"node-2"}, [5]),
        ("NodeReport", {"node-3"}, [6]),
    ]
