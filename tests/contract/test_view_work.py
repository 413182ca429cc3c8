"""However its arguments are chosen, a read does no more work than its page is worth. What the functions ask Redis for
is counted, in Lua in this process and on a real server.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.runtime.stack.valkey import Program, Valkey, program_in_wheel
from fallow.shared.view.keys import keys_of, place_in_queue
from fallow.shared.view.lupa_view import LuaFunctions, Store
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import Functions, ViewMisused

KEYS = keys_of("fallow", "main")
STATUSES = tuple(JobStatus)
TENANTS, QUEUES, NODES = 8, 4, 30
PLAIN = 2_200
NAMED_ALIKE = {"few": 3, "many": 0, "much": 40}
"""How many jobs of each tenant and status are named as elements of an array of this id are, and are none."""

NAMESAKES_MAX = 500
"""So many of them are passed over before a look-up leaves off."""

ELEMENTS = 100
"""So many elements has each tenant's `many`; `few` and `much` have one each, behind all that are named alike."""

FIXED = 30
"""Asked for by every read: where the view stands, and whether it is whole."""

AT_ONCE = 500
"""Ids of one status that a page asks for at once."""


class Counting(Protocol):
    @property
    def functions(self) -> Functions: ...

    async def work(self) -> int:
        """What was asked for so far."""


class CountingStore(Store):
    """Counts the commands and the values in their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.work = 0

    def call(self, command: bytes, *arguments: bytes) -> Any:
        answer = super().call(command, *arguments)
        self.work += 1 + (len(answer) if isinstance(answer, list) else 0)
        return answer


class InLua:
    def __init__(self) -> None:
        self.functions = LuaFunctions()
        self.functions.store = self._store = CountingStore()

    async def work(self) -> int:
        return self._store.work


class OnServer:
    """A server of its own, which counts commands alone."""

    def __init__(self, url: str) -> None:
        self.functions = RedisFunctions(url, loads=True)
        self._raw: Any = Redis.from_url(url)

    async def work(self) -> int:
        found = await self._raw.info("commandstats")
        found.pop("cmdstat_hello", None)
        return sum(each["calls"] for name, each in found.items() if name.startswith(("cmdstat_z", "cmdstat_h")))

    async def close(self) -> None:
        await self.functions.stop()
        await self._raw.aclose()


@pytest_asyncio.fixture(params=["lua", "redis"], scope="module", loop_scope="module")
async def counting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Counting]:
    if request.param == "lua":
        here = InLua()
        await fill(here.functions)
        yield here
        return
    program = program_in_wheel()
    if not isinstance(program, Program):
        pytest.skip(program)
    server = Valkey(program, Path(tmp_path_factory.mktemp("redis")))
    server.start()
    there = OnServer(server.address)
    await fill(there.functions)
    yield there
    await there.close()
    server.stop()


@cache
def jobs_there() -> tuple[tuple[str, JobStatus], ...]:
    """Every job, in full, and its status."""
    plain = [(f"tenant-{number % TENANTS}/job-{number}", STATUSES[number % len(STATUSES)]) for number in range(PLAIN)]
    alike = [
        (f"tenant-{tenant}/{own}.0{number:02}x{status}", status)
        for own, count in NAMED_ALIKE.items()
        for tenant in range(TENANTS)
        for number in range(count)
        for status in STATUSES
    ]
    elements = [
        (f"tenant-{tenant}/{own}.{number}", STATUSES[-1])
        for own in NAMED_ALIKE
        for tenant in range(TENANTS)
        for number in (range(ELEMENTS) if own == "many" else (9,))
    ]
    return (*plain, *alike, *elements)


async def fill(functions: Functions) -> None:
    rows, queued = list[str](), 0
    for number, (job, status) in enumerate(jobs_there()):
        is_queued = status is JobStatus.QUEUED
        place = place_in_queue(f"queue-{number % QUEUES}", (0, 0, number, job)) if is_queued else ""
        rows += [job, f"{job.partition('/')[0]} {status} {place}\n{job}"]
        queued += is_queued
    jobs = str(len(rows) // 2)
    for number in range(NODES):
        rows += [f"node-{number}", "[]"]
    counts = [jobs, "0", str(NODES), "0", "0", "0"]
    totals = [jobs, str(NODES), "0", str(queued)]
    await functions.call("begin_rebuild", KEYS, ["r/1", "", "0", "0"])
    await functions.call("load_rows", KEYS, ["r/1", "0", *counts, *rows])
    answer = await functions.call("finish_rebuild", KEYS, ["r/1", "1", "1", "c", "0", "[]", *totals])
    assert answer[0] == "OK"


def worth(name: str, arguments: list[str]) -> int:
    """The most that a read may ask for, beside a few commands that each makes."""
    match name:
        case "read_jobs":
            page = min(int(arguments[2]), len(jobs_there()))
            return 4 * page + len(STATUSES) * (1 + min(page, AT_ONCE))
        case "read_queue":
            waiting = sum(status is JobStatus.QUEUED for _, status in jobs_there())
            return 4 * min(int(arguments[1]), waiting // QUEUES + 1)
        case "read_nodes":
            return NODES
        case "read_tenants":
            return TENANTS * (2 + len(STATUSES))
        case "read_names":
            alike = NAMED_ALIKE.get(arguments[0], 0) * len(STATUSES) * TENANTS
            return TENANTS * (4 + len(STATUSES)) + 2 * min(alike, NAMESAKES_MAX + 1)
        case "read_arrays":
            return 2 * 3 * len(arguments) + 2 * (NAMESAKES_MAX + 1)
        case "read_summary":
            return len(STATUSES) + 3 * QUEUES
    return 2


NAMES = (
    "read_cursor",
    "read_job",
    "read_jobs",
    "read_nodes",
    "read_tenants",
    "read_names",
    "read_arrays",
    "read_queue",
    "read_summary",
)
LONG = ("x" * 300, "tenant-1/job-1" * 20_000, "é" * 5_000, "\n" * 300)
NUMBERS = ("3", "2000", "10000", "999999999", "10001", "0", "-1", "1e9")
WORDS = (*STATUSES, *LONG, *NUMBERS, "", "tenant-1", "queue-1")


def hostile(name: str, chance: random.Random) -> list[str]:
    """Arguments that may be right at their beginning, and then many statuses or words."""

    def one_of(*good: str) -> str:
        return chance.choice(good if chance.random() < 0.7 else WORDS)

    begins = {
        "read_jobs": [one_of("", "tenant-1"), one_of("", "tenant-1/job-1"), one_of(*NUMBERS[:3])],
        "read_tenants": [one_of(*NUMBERS[:2])],
        "read_names": [one_of("job-1", "many.7", *NAMED_ALIKE)],
        "read_arrays": [f"tenant-1/{one_of('job-1', *NAMED_ALIKE)}" for _ in range(chance.randint(1, 100))],
        "read_queue": [one_of("queue-1", "queue-2"), one_of(*NUMBERS[:3])],
        "read_job": [one_of("tenant-1/job-1", "tenant-2/many.7")],
    }
    begin = begins.get(name, [])
    match chance.randrange(4):
        case 0:
            return begin
        case 1:
            return begin + chance.sample(STATUSES, chance.randrange(1, len(STATUSES) + 1))
        case 2:
            return begin + [chance.choice(STATUSES)] * chance.choice((2, 60, 3_000))
    return begin + chance.choices(WORDS, k=chance.choice((1, 5, 300)))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", NAMES)
async def test_a_read_asks_for_no_more_than_its_page_is_worth(counting: Counting, name: str) -> None:
    chance = random.Random(name)
    found = 0
    for _ in range(150):
        arguments, before = hostile(name, chance), await counting.work()
        told, answer = await outcome(counting.functions, name, arguments)
        most = FIXED if told else FIXED + worth(name, arguments)
        assert (len(told) < 200, await counting.work() - before <= most) == (True, True), arguments[:5]
        found += len(answer) > len(STANDS)
    assert found >= 5


STANDS = ("OK", "version", "cursor", "at_ms")
"""How an answer begins; behind it stands what was found."""


async def outcome(functions: Functions, name: str, arguments: list[str]) -> tuple[str, list[Any]]:
    """What a refusal says, "" for an answer; and the answer."""
    try:
        return "", await functions.call(name, KEYS, arguments)
    except ViewMisused as error:
        return str(error), []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("own", "tenants"),
    [("job-9", [1]), ("many.7", range(TENANTS)), ("many", range(TENANTS)), ("few", range(TENANTS)), ("none", [])],
)
async def test_what_has_an_id_is_found_in_every_tenant(counting: Counting, own: str, tenants: Sequence[int]) -> None:
    answer = await counting.functions.call("read_names", KEYS, [own, *STATUSES])
    assert (answer[0], sorted(answer[len(STANDS) :])) == ("OK", [f"tenant-{tenant}/{own}" for tenant in tenants])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_look_up_among_too_many_that_are_named_alike_says_so(counting: Counting) -> None:
    """And names none of those that it has seen: there may be others."""
    assert await counting.functions.call("read_names", KEYS, ["much", *STATUSES]) == ["TOO_MANY"]


@pytest.mark.asyncio(loop_scope="module")
async def test_arrays_are_told_from_jobs_beside_which_others_are_named_as_elements(counting: Counting) -> None:
    asked = [f"tenant-{tenant}/{own}" for tenant in (1, 5) for own in ("few", "many", "job-9", "none", "man")]
    answer = await counting.functions.call("read_arrays", KEYS, asked)
    arrays = [f"tenant-{tenant}/{own}" for tenant in (1, 5) for own in ("few", "many")]
    assert (answer[0], answer[len(STANDS) :]) == ("OK", arrays)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", NAMES)
async def test_a_read_takes_no_key_for_another(counting: Counting, name: str) -> None:
    arguments = {"read_jobs": ["", "", "9", "queued"], "read_tenants": ["1", "queued"], "read_queue": ["queue-1", "9"]}
    arguments["read_names"] = ["job-1", "queued"]
    wrong = [
        (KEYS[0], KEYS[1], KEYS[2], KEYS[1], KEYS[4], KEYS[5]),
        (*KEYS[:4], KEYS[5], KEYS[5]),
        KEYS * 50,
        KEYS[:5],
        (*KEYS[:5], keys_of("fallow", "other")[5]),
    ]
    for keys in wrong:
        before = await counting.work()
        with pytest.raises(ViewMisused, match="six keys of one cell"):
            await counting.functions.call(
                name, keys, arguments.get(name, ["job-1"] if name in {"read_job", "read_arrays"} else [])
            )
        assert await counting.work() == before


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("tenant", ["", "tenant-3"])
async def test_pages_of_several_statuses_follow_each_other_by_id(counting: Counting, tenant: str) -> None:
    statuses = ["queued", "running", "finished"]
    wanted = sorted(job for job, status in jobs_there() if status in statuses and tenant in ("", job.partition("/")[0]))
    for limit in (7, 10_000):
        found, after = list[str](), ""
        while page := await ids_of(counting.functions, tenant, after, limit, statuses):
            found, after = found + page, page[-1]
            assert len(page) <= limit
        assert found == wanted


async def ids_of(functions: Functions, tenant: str, after: str, limit: int, statuses: list[str]) -> list[str]:
    """The ids of a page: here a row ends with it."""
    answer = await functions.call("read_jobs", KEYS, [tenant, after, str(limit), *statuses])
    return [row.partition("\n")[2] for row in answer[4::2]]
