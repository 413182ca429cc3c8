"""What a node may do goes by the newest word that has arrived, in whatever order words are confirmed."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.lease import KeptLease, Lease, gone_on_with
from fallow.shared.cluster.model.lease import longest_patience_ms
from fallow.shared.cluster.model.state import CellState
from tests.executor.worlds.cells import CELL
from tests.hypothesis_profile import reaches


def test_a_word_that_is_confirmed_behind_a_newer_one_changes_nothing() -> None:
    lease = Lease(0, 20_000)
    lease.renew(2_000, 800)
    lease.renew(1_000, 60_000)
    assert lease.until_ms(0) == 2_800


def test_an_agent_that_goes_on_for_another_has_no_longer_lease_than_any_node_was_told() -> None:
    state = CellState(CELL)
    longest_ms = longest_patience_ms(state)
    assert gone_on_with(KeptLease(1_000, 1_500), state).until_ms(0) == 1_500
    assert gone_on_with(KeptLease(1_000, 1_000 + 9 * longest_ms), state).until_ms(0) == 1_000 + longest_ms


def test_words_of_an_unchanged_lease_that_are_on_their_way_shorten_nothing() -> None:
    lease = Lease(0, 20_000)
    lease.tell(1_000, 20_000)
    lease.renew(3_000, 20_000)
    lease.tell(4_000, 20_000)
    lease.tell(5_000, 20_000)
    lease.renew(4_000, 20_000)
    assert lease.until_ms(0) == 24_000


def test_a_shorter_lease_holds_until_the_word_that_told_it_has_arrived() -> None:
    """A word that was made before it and arrives late does not lift it."""
    lease = Lease(0, 20_000)
    lease.tell(5_000, 800)
    lease.renew(4_000, 20_000)
    assert lease.until_ms(0) == 5_800
    lease.renew(5_000, 800)
    assert lease.until_ms(0) == 5_800
    lease.tell(6_000, 20_000)
    lease.renew(6_000, 20_000)
    assert lease.until_ms(0) == 26_000


def test_each_word_that_arrives_prolongs_an_unchanged_lease_while_later_ones_are_on_their_way() -> None:
    lease = Lease(0, 20_000)
    for made_ms in range(1_000, 31_000, 1_000):
        lease.tell(made_ms, 20_000)
        if made_ms > 3_000:
            lease.renew(made_ms - 2_000, 20_000)
            assert lease.until_ms(0) == made_ms - 2_000 + 20_000


@given(st.lists(st.tuples(st.integers(1, 3_000), st.sampled_from((800, 6_000, 20_000))), max_size=12), st.randoms())
def test_a_node_works_as_long_as_the_newest_word_that_has_arrived_and_each_later_one_allow(
    told: list[tuple[int, int]], chance: Random
) -> None:
    """Words arrive in any order, and some never do."""
    lease, now_ms, newest_ms, words = Lease(0, 20_000), 0, 0, {0: 20_000}
    is_late = False
    for later_ms, allowed_ms in told:
        now_ms += later_ms
        words[now_ms] = allowed_ms
        lease.tell(now_ms, allowed_ms)
        for made_ms in chance.sample(sorted(words)[1:], chance.randint(0, 2) if len(words) > 2 else 0):
            newest_ms = max(newest_ms, made_ms)
            is_late |= made_ms < newest_ms
            lease.renew(made_ms, words[made_ms])
        allows = [made_ms + words[made_ms] for made_ms in words if made_ms >= newest_ms]
        assert lease.until_ms(0) == min(allows)
    reaches("a word arrives behind a newer one", is_late)
