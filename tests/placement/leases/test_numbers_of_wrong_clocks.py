"""A node's words count whatever its clock says, said or will say, and however often its agent restarts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.diaries import Diaries
from fallow.services.executor.files import DiskFiles
from fallow.services.executor.policy.agent import NodeAgent
from fallow.services.placement.lifecycle.nodes.event_dedup import Sequences
from fallow.services.placement.lifecycle.nodes.invalid_events import number_max
from fallow.shared.events.fields.value import replace
from fallow.shared.events.nodes import SEQ_LEAD_WALL_MS
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, joined, report

SECOND_MS, HOUR_MS, BEGUN_MS = 1_000, 3_600_000, 1_700_000_000_000
SAID_AGAIN_MAX = 1
"""So often words are said again at most."""

ERRORS_MS = st.one_of(
    st.integers(-48 * HOUR_MS, 48 * HOUR_MS),
    st.integers(-48, 48).map(lambda hours: hours * HOUR_MS),
    st.integers(-90 * SECOND_MS, 90 * SECOND_MS),
)
STAYS_MS = st.one_of(st.integers(0, 90 * SECOND_MS), st.integers(0, 30 * HOUR_MS))


@dataclass(slots=True)
class Node:
    """One boot of n1 with its disk, the reader of its words, and the broker's time."""

    reigns: Diaries
    now_ms: int = BEGUN_MS
    reader: Sequences = field(default_factory=Sequences)
    agent: NodeAgent | None = None

    def begin(self, error_ms: int, way_ms: int) -> None:
        """The agent restarts while the clock is wrong by `error_ms`, and comes to its first words after `way_ms`."""
        seq = self.reigns.take(0, max(0, self.now_ms + error_ms))
        self.agent = NodeAgent(CELL, joined("n1").spec, "boot-1", seq=seq, now_ms=0)
        self.now_ms += way_ms

    def say(self, words: int = 1) -> tuple[bool, int]:
        """Whether all words are news once their numbers are taken for right, and how often they were said again."""
        assert self.agent is not None
        for again in range(SAID_AGAIN_MAX + 2):
            self.now_ms += 10 + again * 50
            numbers = [self.agent.next_seq() for _ in range(words)]
            are_news = [self._reads(seq) for seq in numbers]
            are_taken = [self.agent.number_by(seq, self.now_ms) for seq in numbers]
            if all(are_taken):
                return all(are_news), again
        return False, again

    def _reads(self, seq: int) -> bool:
        most = number_max(self.now_ms)
        return seq <= most and self.reader.past(replace(report("n1"), seq=seq), "boot-1", most=most) is None


@given(
    agents=st.lists(st.tuples(ERRORS_MS, STAYS_MS, STAYS_MS, st.integers(1, 50)), min_size=2, max_size=6),
)
def test_words_of_each_agent_are_news_whatever_the_clocks_of_those_before_it(
    agents: list[tuple[int, int, int, int]],
) -> None:
    """Of each: how wrong its clock is as it begins, how late it learns the broker's time, how long it lives."""
    goes_back = any(after[0] + before[1] + 2 * before[2] < before[0] for before, after in pairwise(agents))
    reaches("an agent begins with a clock behind that of the one before it", goes_back)
    with TemporaryDirectory() as folder:
        node = Node(Diaries(DiskFiles(Path(folder)), CELL, 1))
        for error_ms, way_ms, stay_ms, words in agents:
            node.begin(error_ms, way_ms)
            are_news, again = node.say(words)
            assert are_news
            assert again <= SAID_AGAIN_MAX
            assert node.say() == (True, 0)
            node.now_ms += stay_ms
            assert node.say() == (True, 0)
        node.reigns.let_go(0)


@pytest.mark.parametrize("restarts", [1, 30])
@pytest.mark.parametrize("hours", [-48, -13, -11, 0, 1, 11, 13, 14, 23, 25, 48, 2_400_000])
def test_a_clock_that_was_wrong_and_is_put_right_silences_no_node(tmp_path: Path, hours: int, restarts: int) -> None:
    node = Node(Diaries(DiskFiles(tmp_path), CELL, 1))
    for error_ms in (0, *[hours * HOUR_MS] * restarts, *[0] * restarts):
        node.begin(error_ms, SECOND_MS)
        assert node.say()[0]
        assert node.say() == (True, 0)


def test_where_the_clock_is_right_no_word_is_said_twice(tmp_path: Path) -> None:
    node = Node(Diaries(DiskFiles(tmp_path), CELL, 1))
    for way_ms in (0, SECOND_MS, 50 * SECOND_MS):
        node.begin(0, way_ms)
        assert node.say() == (True, 0)


@pytest.mark.parametrize("hours", [-48, -13, -11, -1])
def test_a_clock_that_is_behind_on_another_disk_silences_no_node_for_long(tmp_path: Path, hours: int) -> None:
    node = Node(Diaries(DiskFiles(tmp_path / "a"), CELL, 1))
    node.begin(0, SECOND_MS)
    assert node.say()[0]
    node.now_ms += SEQ_LEAD_WALL_MS
    for disk in ("b", "c"):
        node.reigns = Diaries(DiskFiles(tmp_path / disk), CELL, 1)
        node.begin(hours * HOUR_MS, SECOND_MS)
        assert node.say()[0]
        assert node.say() == (True, 0)


def test_a_node_on_another_disk_is_heard_when_the_time_is_over_that_its_clock_was_ahead(tmp_path: Path) -> None:
    node = Node(Diaries(DiskFiles(tmp_path / "a"), CELL, 1))
    node.begin(HOUR_MS, SECOND_MS)
    assert node.say()[0]
    node.reigns = Diaries(DiskFiles(tmp_path / "b"), CELL, 1)
    node.begin(0, SECOND_MS)
    assert not node.say()[0]
    node.now_ms += HOUR_MS + SEQ_LEAD_WALL_MS
    node.say()
    assert node.say() == (True, 0)
