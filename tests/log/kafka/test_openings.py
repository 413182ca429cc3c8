"""Clients of many partitions that one process opens at once: some at a time, so that the first are open early."""

from __future__ import annotations

import asyncio

import pytest

from fallow.shared.log.kafka.kept_client import KeptClient, State, end_of
from fallow.shared.log.kafka.openings import OPENINGS_AT_ONCE, TURN_S, Openings
from tests.log.worlds.late_loop import now_s, virtual

CLIENTS, OPENING_S, SLICES = 200, 0.05, 10
CALL_S, BOUND_S, CLOSING_S = 3.0, 22.5, 0.01
SUM_S = CLIENTS * OPENING_S


class Process:
    """One loop, which works on one thing at a time. An opening takes `OPENING_S` of it, in slices, between which the
    loop turns to the others; one that is silent takes none of it and never ends.
    """

    def __init__(self, clients: int, *, silent: int = 0) -> None:
        self.loop, self.opened_s = asyncio.Lock(), dict[int, float]()
        self.began_s, self.zero_s = dict[int, list[float]](), now_s()
        openings = Openings()
        self.kept = [
            KeptClient(lambda n=n: n, self.start, self.close, bound_s=BOUND_S, openings=openings)  # type: ignore[misc]
            for n in range(clients)
        ]
        self.silent = range(silent)

    def now_s(self) -> float:
        return now_s() - self.zero_s

    async def start(self, client: int) -> None:
        self.began_s.setdefault(client, []).append(self.now_s())
        if client in self.silent:
            await asyncio.Event().wait()
        for _ in range(SLICES):
            async with self.loop:
                await asyncio.sleep(OPENING_S / SLICES)
        self.opened_s[client] = self.now_s()

    async def close(self, _: int) -> None:
        await asyncio.sleep(CLOSING_S)

    async def call(self, client: int) -> bool:
        try:
            async with asyncio.timeout(CALL_S) as bound:
                await self.kept[client].opened(end_of(bound))
        except TimeoutError:
            return False
        return True

    async def call_all(self) -> int:
        """How many of one call for each client had it."""
        return sum(await asyncio.gather(*map(self.call, range(len(self.kept)))))

    async def stop(self) -> None:
        await asyncio.gather(*[kept.stop() for kept in self.kept])


@virtual
async def test_of_200_clients_the_first_are_open_early_and_all_in_the_sum() -> None:
    process = Process(CLIENTS)
    served = [await process.call_all() for _ in range(4)]
    in_a_call = CALL_S / OPENING_S
    expected = [min(CLIENTS, round(in_a_call * calls)) for calls in (1, 2, 3, 4)]
    assert served == pytest.approx(expected, abs=2 * OPENINGS_AT_ONCE), "some are opened in the last moment of a call"
    assert served[-1] == CLIENTS
    assert list(process.opened_s) == list(range(CLIENTS)), "first come, first served"
    assert min(process.opened_s.values()) <= OPENINGS_AT_ONCE * OPENING_S + 1e-9
    assert max(process.opened_s.values()) == pytest.approx(SUM_S)
    assert all(len(begun) == 1 for begun in process.began_s.values()), "a call that gives up ends no opening"
    await process.stop()


@virtual
async def test_after_a_hiccup_of_all_they_are_opened_anew_in_the_same_time() -> None:
    process = Process(CLIENTS)
    while await process.call_all() < CLIENTS:
        continue
    for number, kept in enumerate(process.kept):
        kept.close(number)
    again_s = process.now_s()
    assert await process.call_all() >= CALL_S / OPENING_S - OPENINGS_AT_ONCE
    while await process.call_all() < CLIENTS:
        continue
    assert max(process.opened_s.values()) - again_s == pytest.approx(SUM_S)
    await process.stop()


@virtual
async def test_clients_of_a_silent_leader_keep_those_of_others_waiting_for_a_part_of_their_bound_only() -> None:
    silent = 5 * OPENINGS_AT_ONCE
    process = Process(silent + 1, silent=silent)
    while silent not in process.opened_s:
        await process.call_all()
    assert process.opened_s[silent] <= silent / OPENINGS_AT_ONCE * TURN_S + 2 * OPENING_S
    await process.stop()


@virtual
async def test_the_bound_of_an_opening_counts_from_when_it_begins() -> None:
    process = Process(3 * OPENINGS_AT_ONCE, silent=3 * OPENINGS_AT_ONCE)
    await process.call_all()
    begun = {number: times[0] for number, times in process.began_s.items()}
    assert max(begun.values()) >= TURN_S
    for number, began_s in begun.items():
        await asyncio.sleep(max(0.0, began_s + BOUND_S - 0.01 - process.now_s()))
        assert process.kept[number].state is State.OPENING
    await asyncio.sleep(0.02)
    assert {kept.state for kept in process.kept} == {State.CLOSED}
    await process.stop()


@virtual
async def test_a_stop_ends_those_that_wait_for_their_turn_and_lets_the_next_ones_begin() -> None:
    process = Process(OPENINGS_AT_ONCE + 2, silent=OPENINGS_AT_ONCE)
    calls = [asyncio.create_task(process.call(number)) for number in range(OPENINGS_AT_ONCE + 2)]
    await asyncio.sleep(TURN_S / 2)
    waiting, last = process.kept[-2:]
    await waiting.stop()
    assert (waiting.state, last.state) == (State.STOPPED, State.OPENING)
    assert sorted(process.began_s) == list(range(OPENINGS_AT_ONCE)), "one that never had its turn began nothing"
    await process.kept[0].stop()
    assert await calls[-1]
    assert process.opened_s[OPENINGS_AT_ONCE + 1] == pytest.approx(TURN_S / 2 + OPENING_S, abs=2 * CLOSING_S)
    await process.stop()
    await asyncio.gather(*calls, return_exceptions=True)
