"""A client of Kafka that is kept: its four states, and an opening that goes on behind the call that began it."""

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka.errors import KafkaConnectionError

from fallow.shared.log.kafka.connection import opening_bound_s
from fallow.shared.log.kafka.kept_client import KeptClient, State, end_of
from fallow.shared.runtime.kafka_access import KafkaAccess, Protocol
from tests.log.worlds.late_loop import now_s, virtual

BOUND_S, CALL_S, CLOSING_S, NEVER_S = 60.0, 3.0, 0.5, 100_000.0
CALLS_MAX = 20


class Client:
    """It is connected after so many answers, each of which comes late."""

    def __init__(self, answers: int, late_s: float) -> None:
        self.answers, self.late_s = answers, late_s
        self.is_connected = self.is_closed = False

    async def start(self) -> None:
        for _ in range(self.answers):
            await asyncio.sleep(self.late_s)
        self.is_connected = True

    async def stop(self) -> None:
        await asyncio.sleep(CLOSING_S)
        self.is_closed = True


class Scene:
    """A kept client whose broker answers late, or refuses by this error, and every client that was made for it."""

    def __init__(self, *, answers: int = 4, late_s: float = 1.0, bound_s: float = BOUND_S) -> None:
        self.answers, self.late_s, self.error = answers, late_s, None
        self.made: list[Client] = []
        self.kept = KeptClient(self.make, self.start, Client.stop, bound_s=bound_s)

    error: Exception | None

    def make(self) -> Client:
        self.made.append(Client(self.answers, self.late_s))
        return self.made[-1]

    async def start(self, client: Client) -> None:
        await client.start()
        if self.error is not None:
            raise self.error

    async def call(self) -> Client:
        async with asyncio.timeout(CALL_S) as bound:
            return await self.kept.opened(end_of(bound))

    async def call_until_open(self) -> int:
        """How many calls in a row had no client."""
        for failed in range(CALLS_MAX):
            try:
                await self.call()
            except TimeoutError:
                continue
            return failed
        raise AssertionError("no call ever has one")


@virtual
async def test_it_goes_from_closed_by_opening_to_open_and_is_stopped_for_good() -> None:
    scene = Scene(answers=2)
    states = [scene.kept.state]
    calling = asyncio.create_task(scene.call())
    await asyncio.sleep(1.0)
    states.append(scene.kept.state)
    client = await calling
    states.append(scene.kept.state)
    assert client.is_connected
    scene.kept.close(client)
    states.append(scene.kept.state)
    assert await scene.call() is not client
    scene.kept.close(client)
    states.append(scene.kept.state)  # the one that was closed before is not this one
    await scene.kept.stop()
    states.append(scene.kept.state)
    assert states == [State.CLOSED, State.OPENING, State.OPEN, State.CLOSED, State.OPEN, State.STOPPED]
    assert [each.is_closed for each in scene.made] == [True, True]
    with pytest.raises(KafkaConnectionError, match="closed for good"):
        await scene.call()
    assert len(scene.made) == 2


@pytest.mark.parametrize(("answers", "late_s", "calls"), [(4, 0.1, 0), (5, 1.0, 1), (13, 1.0, 4), (13, 1.3, 6)])
@virtual
async def test_an_opening_goes_on_behind_the_calls_that_have_no_time_for_it(
    answers: int, late_s: float, calls: int
) -> None:
    scene = Scene(answers=answers, late_s=late_s)
    assert await scene.call_until_open() in {calls, calls + 1}, "the last may have too little time left to use it"
    assert len(scene.made) == 1
    began_s = now_s()
    assert await scene.call() is scene.made[0]
    assert now_s() == began_s, "an open one is waited for no more"
    await scene.kept.stop()


@virtual
async def test_a_call_that_the_opening_leaves_too_little_time_leaves_the_client_to_the_next_one() -> None:
    scene = Scene(answers=4, late_s=0.7)
    with pytest.raises(TimeoutError):
        await scene.call()
    assert scene.kept.state is State.OPEN
    assert await scene.call() is scene.made[0]
    await scene.kept.stop()


@virtual
async def test_a_call_that_is_cancelled_leaves_the_opening_to_the_next_one() -> None:
    scene = Scene(answers=2)
    calling = asyncio.create_task(scene.call())
    await asyncio.sleep(0.5)
    calling.cancel()
    began_s = now_s()
    assert await scene.call() is scene.made[0]
    assert now_s() - began_s == pytest.approx(1.5)
    await scene.kept.stop()


@virtual
async def test_a_failure_is_told_to_every_call_that_waits_and_the_next_one_opens_anew() -> None:
    scene = Scene(answers=1)
    scene.error = OSError("no route")
    told = await asyncio.gather(*[scene.call() for _ in range(3)], return_exceptions=True)
    assert [str(each) for each in told] == ["no route"] * 3
    assert (scene.kept.state, len(scene.made)) == (State.CLOSED, 1)
    scene.error = None
    assert await scene.call() is scene.made[1]
    assert scene.made[0].is_closed, "one that is half open is closed too"
    await scene.kept.stop()


@virtual
async def test_an_opening_ends_at_its_bound_and_the_next_call_begins_another() -> None:
    scene = Scene(late_s=NEVER_S, bound_s=2 * CALL_S - 1)
    began_s = now_s()
    with pytest.raises(TimeoutError):
        await scene.call()
    assert (scene.kept.state, len(scene.made)) == (State.OPENING, 1)
    with pytest.raises(TimeoutError):
        await scene.call()
    assert now_s() - began_s == 2 * CALL_S - 1, "a call that waits is told at once"
    assert scene.kept.state is State.CLOSED
    scene.late_s = 0.1
    assert await scene.call() is scene.made[1]
    await scene.kept.stop()
    assert [each.is_closed for each in scene.made] == [True, True]


@pytest.mark.parametrize("after_s", [0.0, 0.5, 3.5])
@virtual
async def test_a_stop_ends_an_opening_and_the_calls_that_wait_for_it(after_s: float) -> None:
    scene = Scene()
    calls = [asyncio.create_task(scene.call()) for _ in range(2)]
    await asyncio.sleep(after_s)
    began_s = now_s()
    await scene.kept.stop()
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in told} == {TimeoutError if after_s > CALL_S else KafkaConnectionError}
    assert now_s() - began_s <= CLOSING_S
    assert [each.is_closed for each in scene.made] == [True] * (after_s > 0)
    assert scene.kept.state is State.STOPPED


@virtual
async def test_a_stop_waits_for_the_clients_that_are_being_closed() -> None:
    scene = Scene(answers=1, late_s=0.1)
    scene.kept.close(await scene.call())
    await scene.kept.stop()
    assert scene.made[0].is_closed


async def test_a_failure_that_no_call_waits_for_is_no_word_of_asyncio() -> None:
    told = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["message"]))
    scene = Scene(answers=1, late_s=0.02)
    scene.error = OSError("no route")
    calling = asyncio.create_task(scene.call())
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.sleep(0.05)
    assert scene.kept.state is State.CLOSED
    await scene.kept.stop()
    del scene
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


PLAIN, SECURED = KafkaAccess("a:1"), KafkaAccess("a:1", Protocol.SASL_SSL, username="u", password="p")


@pytest.mark.parametrize(("access", "answers"), [(PLAIN, 6), (SECURED, 13)], ids=["plain", "secured"])
def test_the_bound_of_an_opening_lets_every_step_of_it_take_its_own(access: KafkaAccess, answers: int) -> None:
    assert opening_bound_s(access, 2.5) >= 2.5 * answers


def test_each_further_address_may_be_one_that_does_not_answer() -> None:
    two = KafkaAccess("a:1,b:1")
    assert opening_bound_s(two, 2.5) - opening_bound_s(PLAIN, 2.5) >= 2.5
