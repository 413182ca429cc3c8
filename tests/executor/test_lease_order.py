"""What a node may do goes by the newest word that has arrived, in whatever order words are confirmed."""

from __future__ import annotations

from services.executor.policy.lease import Lease


def test_a_word_that_is_confirmed_behind_a_newer_one_changes_nothing() -> None:
    lease = Lease(0, 20_000)
    lease.renew(2_000, 800)
    lease.renew(1_000, 60_000)
    assert lease.until_ms(0) == 2_800


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
