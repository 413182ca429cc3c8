"""Who of a group owns which partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.log.machine.sharing import as_bytes, from_bytes, share
from tests.hypothesis_profile import reaches

PARTITIONS = st.integers(0, 12)


@given(st.dictionaries(st.text("abc", min_size=1), st.frozensets(PARTITIONS), max_size=5), st.frozensets(PARTITIONS))
def test_every_partition_that_someone_takes_has_one_owner_who_does_not_decline_it(
    declined: dict[str, frozenset[int]], partitions: frozenset[int]
) -> None:
    shares = share(partitions, declined)
    owned = [(partition, member) for member, mine in shares.items() for partition in mine]
    wanted = {p for p in partitions if any(p not in mine for mine in declined.values())}
    reaches("a member declines what another one takes", any(wanted & mine for mine in declined.values()))
    assert sorted(partition for partition, _ in owned) == sorted(wanted)
    assert all(partition not in declined[member] for partition, member in owned)


@given(st.integers(1, 6), st.integers(0, 20))
def test_where_no_member_declines_anything_the_shares_differ_by_one_at_most(members: int, partitions: int) -> None:
    sizes = [len(mine) for mine in share(range(partitions), {f"m{n}": () for n in range(members)}).values()]
    reaches("not all can have the same share", partitions % members)
    assert max(sizes) - min(sizes) <= 1


@given(st.frozensets(st.integers(0, 10**8)))
def test_what_is_declined_is_told_as_it_is(declined: frozenset[int]) -> None:
    assert from_bytes(as_bytes(declined)) == declined


PARTS = st.sampled_from([b"0", b"7", b"12", b"007", b"999999999", b"9999999999", b"-1", b"1.5", b"x", b""])


@given(st.binary() | st.none() | st.lists(PARTS, max_size=6).map(b",".join))
def test_a_stranger_may_tell_anything(told: bytes | None) -> None:
    declined = from_bytes(told)
    reaches("what a stranger tells is something that is declined", declined)
    assert all(partition >= 0 for partition in declined)
