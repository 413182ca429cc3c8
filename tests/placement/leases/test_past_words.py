"""What nodes say too late, twice, of another boot or of what nobody knows: it changes nothing, and nothing is stuck."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fallow.services.placement.lifecycle.nodes.event_dedup import FORMER_BOOTS_MAX, Sequences, StaleReason
from fallow.shared.cluster.model.config import NODE_PATTERNS_MAX, CellFile, Pool
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import nodes as n
from fallow.shared.events.base import LARGEST_INTEGER, TEXT_CHARACTERS_MAX
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus, RunStatus
from fallow.shared.events.operations import Cordon
from fallow.shared.events.reasons import DeadLetterReason
from tests.placement.worlds.world import (
    CELL,
    FILE,
    Fate,
    World,
    cell_with,
    finished,
    is_ready,
    joined,
    kinds,
    lost,
    report,
    seen,
    spec_of,
    started,
)


def at(seq: int, event: n.NodeEvent) -> n.NodeEvent:
    """The same, under this number."""
    return replace(event, seq=seq)


def running(file: CellFile = FILE) -> World:
    """A job that runs on n1, whose newest word was number 10."""
    world = cell_with(joined("n1"), file=file)
    world.run(spec_of("job"))
    world.numbers_words = False
    world.tell(at(10, report("n1", seen("job"))))
    world.service.take_past()
    return world


def reasons(world: World) -> list[DeadLetterReason]:
    return [stray.reason for _, stray in world.service.take_strays()]


@pytest.mark.parametrize("seq", [0, 9, 10])
def test_a_report_with_an_old_number_is_past(seq: int) -> None:
    world = running()
    assert world.tell(at(seq, report("n1", failed=(0,)))) == []
    assert world.service.take_past() == {StaleReason.OLD_SEQUENCE: 1}


def test_a_run_event_with_an_old_number_is_past_and_its_repetition_counts() -> None:
    world = running()
    assert world.tell(at(9, finished("job"))) == []
    assert kinds(world.tell(at(11, finished("job")))) == ["JobFinished"]


def test_a_late_loss_does_not_take_a_node_away_that_has_spoken_since() -> None:
    world = running()
    assert world.tell(at(5, lost("n1"))) == []
    assert is_ready(world, "n1")


def test_a_past_word_renews_no_lease() -> None:
    world = running()
    for seq in (1, 2, 3):
        world.pass_time(12_000)
        world.tell(at(seq, report("n1")))
    world.pass_time(12_000)
    assert world.state.nodes["n1"].status is NodeStatus.LOST


def test_a_boot_that_was_replaced_does_not_come_back() -> None:
    world = running()
    world.tell(at(0, joined("n1", boot="boot-2")))
    assert world.tell(at(99, joined("n1", boot="boot-1")), at(99, report("n1", seen("job")))) == []
    assert world.state.nodes["n1"].boot == "boot-2"
    assert world.service.take_past() == {StaleReason.OLD_BOOT: 2}


def test_numbers_begin_anew_with_each_boot_however_many_there_are() -> None:
    world = cell_with(joined("n1"))
    world.numbers_words = False
    for number in range(2, FORMER_BOOTS_MAX + 5):
        world.tell(at(0, joined("n1", boot=f"boot-{number}")))
        assert world.state.nodes["n1"].boot == f"boot-{number}"


def test_of_more_boots_than_are_remembered_the_last_ones_do_not_come_back_and_one_before_them_does() -> None:
    world = cell_with(joined("n1", boot="boot-0"))
    world.numbers_words = False
    for number in range(1, FORMER_BOOTS_MAX + 2):
        world.tell(at(0, joined("n1", boot=f"boot-{number}")))
    for number in range(1, FORMER_BOOTS_MAX + 1):
        assert world.tell(at(99, joined("n1", boot=f"boot-{number}"))) == []
    assert world.service.take_past() == {StaleReason.OLD_BOOT: FORMER_BOOTS_MAX}
    world.tell(at(99, joined("n1", boot="boot-0")))
    assert world.state.nodes["n1"].boot == "boot-0"


def test_eight_boots_of_a_node_are_remembered() -> None:
    """Each costs memory for each node, and a node that starts again in a circle goes through a few names."""
    assert FORMER_BOOTS_MAX == 8


def test_a_decision_that_did_not_get_into_the_log_leaves_its_inputs_as_news() -> None:
    fates = iter([Fate.LOST])
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.on_append = lambda: next(fates, Fate.KEPT)
    assert kinds(world.tell(finished("job"))) == ["JobFinished"]


def test_a_new_writer_takes_in_what_the_old_one_had_read_without_writing() -> None:
    world = running()
    world.restart()
    assert kinds(world.tell(at(11, finished("job")))) == ["JobFinished"]


def test_news_of_a_run_that_is_over_is_counted_and_changes_nothing() -> None:
    world = running()
    world.tell(at(11, finished("job")))
    assert world.tell(at(12, started("job")), at(13, finished("job", attempt=2)), at(14, finished("nobody"))) == []
    assert world.service.take_past() == {StaleReason.RUN_OVER: 3}


@pytest.mark.parametrize("word", [report("n9"), lost("n9"), finished("job", "n9")])
def test_an_unknown_nodes_word_is_set_aside(word: n.NodeEvent) -> None:
    world = running()
    assert world.tell(word) == []
    assert reasons(world) == [DeadLetterReason.UNKNOWN_NODE]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (joined("n2", pool="nowhere"), DeadLetterReason.UNKNOWN_POOL),
        (joined("n2", gpus=9), DeadLetterReason.LARGER_THAN_POOL),
    ],
)
def test_a_node_that_fits_no_pool_of_the_cell_file_is_set_aside(node: n.NodeJoined, reason: DeadLetterReason) -> None:
    world = running()
    assert world.tell(node) == []
    assert reasons(world) == [reason]
    assert list(world.state.nodes) == ["n1"]


def file_that_takes(*nodes: str) -> CellFile:
    """The cell file, where these nodes may join each pool."""
    (part,) = FILE.cells
    pools = tuple(pool.model_copy(update={"nodes": nodes}) for pool in part.pools)
    return FILE.model_copy(update={"cells": (part.model_copy(update={"pools": pools}),)})


@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [
        (("*",), True),
        (("n2",), True),
        (("gpu-*", "n*"), True),
        (("*2",), True),
        (("n22",), False),
        (("gpu-*",), False),
        (("2*",), False),
    ],
)
def test_a_pool_takes_the_nodes_that_the_cell_file_names(patterns: tuple[str, ...], allowed: bool) -> None:
    world = running(file_that_takes("n1", *patterns))
    world.tell(joined("n2"))
    assert ("n2" in world.state.nodes) == allowed
    assert reasons(world) == ([] if allowed else [DeadLetterReason.NODE_NOT_ALLOWED])


def test_the_answer_to_a_node_that_may_not_join_is_cut_where_the_pool_names_many() -> None:
    world = running(file_that_takes("n1", *(f"node-of-a-long-name-{number:04}" for number in range(99))))
    world.tell(joined("n2"))
    ((_, rejected),) = world.service.take_strays()
    assert rejected.text.startswith("node: n2 may not join pool ")
    assert len(rejected.text) == TEXT_CHARACTERS_MAX


@pytest.mark.parametrize(
    "nodes", [(), ("n[12]",), ("n?",), ("N1",), ("n-",), ("n 1",), ("*",) * (NODE_PATTERNS_MAX + 1)]
)
def test_a_pattern_of_nodes_has_no_sign_but_the_star(nodes: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="nodes"):
        Pool(name="train", gpus=8, nodes=nodes)


def test_a_node_that_is_there_stays_where_the_file_no_longer_names_it_until_it_joins_again() -> None:
    world = running()
    world.file = file_that_takes("gpu-*")
    world.restart()
    assert is_ready(world, "n1")
    world.tell(at(20, joined("n1", boot="boot-2")))
    assert reasons(world) == [DeadLetterReason.NODE_NOT_ALLOWED]


def test_a_report_of_devices_that_the_node_does_not_have_is_set_aside_and_the_rest_of_it_counts() -> None:
    world = running()
    made = world.tell(at(11, report("n1", seen("job", RunStatus.FINISHED), failed=(3, 8, 2**53 - 1))))
    assert kinds(made) == ["DeviceChanged", "JobFinished"]
    assert reasons(world) == [DeadLetterReason.UNKNOWN_DEVICE]
    world.tell(n.DeviceFailed(cell=CELL, node="n1", boot="boot-1", seq=12, device=8))
    assert reasons(world) == [DeadLetterReason.UNKNOWN_DEVICE]
    assert world.state.finished["job"].status is JobStatus.FINISHED


def test_a_late_join_of_a_former_boot_is_past_for_a_writer_that_never_read_of_it() -> None:
    world = running()
    world.tell(at(20, joined("n1", boot="boot-2")))
    world.restart()
    assert world.tell(at(5, joined("n1", boot="boot-1"))) == []
    assert world.service.take_past() == {StaleReason.OLD_BOOT: 1}
    assert (world.state.nodes["n1"].boot, is_ready(world, "n1")) == ("boot-2", True)


def test_what_a_node_said_before_its_boot_began_is_past_for_a_new_writer() -> None:
    world = running()
    world.tell(at(20, joined("n1", boot="boot-2")))
    world.restart()
    assert world.tell(at(20, report("n1", boot="boot-2", failed=(0,)))) == []
    assert kinds(world.tell(at(21, report("n1", boot="boot-2", failed=(0,))))) == ["DeviceChanged"]


def test_an_operators_wish_leaves_the_number_of_the_boot() -> None:
    world = running()
    world.tell(at(20, joined("n1", boot="boot-2")))
    world.tell(Cordon(cell=CELL, node="n1"))
    assert world.state.nodes["n1"].seq == 20


BROKER_MS = 1_700_000_000_000
"""The wall time of the broker."""


def stamped_at_broker() -> World:
    """A job that runs on n1, which numbers its words by the broker's clock; no stamp was bounded yet."""
    world = running()
    world.stamped_ms = BROKER_MS
    world.tell(at(BROKER_MS * n.SEQ_PER_MS, report("n1", seen("job"))))
    world.service.take_past()
    return world


FURTHEST = n.seq_max(BROKER_MS)


def test_no_single_word_silences_a_node() -> None:
    world = stamped_at_broker()
    forged = (
        at(LARGEST_INTEGER, report("n1", seen("job"))),
        at(LARGEST_INTEGER, lost("n1")),
        at(LARGEST_INTEGER, joined("n1", boot="boot-9")),
        n.NodesReported(cell=CELL, reports=(at(LARGEST_INTEGER, report("n1")),)),  # type: ignore[arg-type]
        n.RunsReported(cell=CELL, words=(word(LARGEST_INTEGER),)),
    )
    for event in forged:
        assert world.tell(event) == []
        assert reasons(world) == [DeadLetterReason.SEQUENCE_TOO_FAR]
    assert kinds(world.tell(at(BROKER_MS * n.SEQ_PER_MS + 1, finished("job")))) == ["JobFinished"]


def word(seq: int, status: RunStatus = RunStatus.FAILED) -> n.RunStatusUpdate:
    return n.RunStatusUpdate(node="n1", boot="boot-1", seq=seq, job="job", attempt=1, status=status)


def test_the_other_words_of_a_record_with_one_that_is_too_far_ahead_count() -> None:
    world = stamped_at_broker()
    words = (word(LARGEST_INTEGER), word(BROKER_MS * n.SEQ_PER_MS + 1, RunStatus.FINISHED))
    assert kinds(world.tell(n.RunsReported(cell=CELL, words=words))) == ["JobFinished"]
    assert reasons(world) == [DeadLetterReason.SEQUENCE_TOO_FAR]


def test_a_word_counts_up_to_a_day_ahead_of_its_stamp_and_not_one_number_further() -> None:
    world = stamped_at_broker()
    world.tell(at(FURTHEST + 1, report("n1", seen("job"))))
    assert reasons(world) == [DeadLetterReason.SEQUENCE_TOO_FAR]
    world.tell(at(FURTHEST, report("n1", seen("job"))))
    assert (reasons(world), world.service.take_past()) == ([], {})


def test_a_day_ahead_of_the_stamp_is_the_furthest() -> None:
    """More than a clock is wrong that takes the time of its place for UTC, and little enough to be waited for."""
    assert n.seq_max(BROKER_MS) == (BROKER_MS + 86_400_000) * 1_000


def test_a_word_whose_stamp_is_not_known_may_have_any_number() -> None:
    world = running()
    assert kinds(world.tell(at(LARGEST_INTEGER, finished("job")))) == ["JobFinished"]
    assert reasons(world) == []


@pytest.mark.parametrize("is_in_log", [False, True], ids=["heard", "in the log"])
def test_a_node_that_a_release_without_the_bound_let_be_silenced_speaks_again(is_in_log: bool) -> None:
    world = running()
    world.tell(at(LARGEST_INTEGER, joined("n1", boot="boot-2") if is_in_log else report("n1", seen("job"))))
    boot = "boot-2" if is_in_log else "boot-1"
    if is_in_log:
        assert world.state.nodes["n1"].seq == LARGEST_INTEGER
    world.stamped_ms = BROKER_MS
    own = replace(report("n1", failed=(0,)), boot=boot)
    assert kinds(world.tell(at(BROKER_MS * n.SEQ_PER_MS, own)))[:1] == ["DeviceChanged"]
    assert world.tell(at(BROKER_MS * n.SEQ_PER_MS, own)) == []
    assert world.service.take_past() == {StaleReason.OLD_SEQUENCE: 1}


def test_a_boot_that_is_not_in_force_yet_and_was_silenced_by_a_release_without_the_bound_joins() -> None:
    """Of such a boot the log knows no number: there is only what this writer has read."""
    sequences, most, own = Sequences(), n.seq_max(BROKER_MS), at(BROKER_MS * n.SEQ_PER_MS, joined("n1", boot="boot-2"))
    assert sequences.past(at(LARGEST_INTEGER, own), "boot-1") is None
    assert sequences.past(own, "boot-1", most=most) is None
    assert sequences.past(own, "boot-1", most=most) is StaleReason.OLD_SEQUENCE
