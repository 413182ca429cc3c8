"""The view's functions as a target: an input is a call, `[name, argument, ...]`. It is made on a whole view and on one
that is being built, in Lua here and, where there is one, on a real server, which must do and answer the same.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any, Protocol

from redis import Redis
from redis.exceptions import ResponseError

from fallow.services.projector.app.apply import all_rows, stand_of, totals_of
from fallow.shared.events.effects import JobCancelled, JobEnqueued
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.view.keys import keys_of
from fallow.shared.view.library import function, library_source
from fallow.shared.view.lupa_view import LuaFunctions, Store
from fallow.shared.view.row_batch import Rows
from fallow.shared.view.store import CellView, Functions, ViewMisused
from tests.cli.worlds.logs import DIGEST, an_honest_log, enqueued
from tests.fuzz.targets import Target, corpus_of

WRITES = ("apply", "begin_rebuild", "load_rows", "finish_rebuild", "fence")
READS = (
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
KEYS = keys_of("fuzz", "main")
Content = dict[str, dict[str, str] | list[str]]


class Server(Protocol):
    """Where the functions run."""

    def put(self, content: Content) -> None: ...
    def content(self) -> Content: ...
    def call(self, name: str, arguments: list[str]) -> Any: ...


class Refused(Exception):
    """A function did not do what it was asked."""


class InLua:
    """This process."""

    def __init__(self) -> None:
        self.lua = LuaFunctions()

    def put(self, content: Content) -> None:
        self.lua.flush()
        for key, held in content.items():
            self._fill(self.lua.store, key.encode(), held)

    @staticmethod
    def _fill(store: Store, key: bytes, held: dict[str, str] | list[str]) -> None:
        if isinstance(held, dict):
            store.hashes[key] = {name.encode(): value.encode() for name, value in held.items()}
        else:
            for name in held:
                store.call(b"ZADD", key, b"0", name.encode())

    def content(self) -> Content:
        hashes, names = self.lua.store.hashes, self.lua.store.names
        found: Content = {}
        for key, held in hashes.items():
            if held:
                found[key.decode()] = {name.decode(): value.decode() for name, value in sorted(held.items())}
        for key, members in names.items():
            if members.names:
                found[key.decode()] = [name.decode() for name in members.names]
        return found

    def call(self, name: str, arguments: list[str]) -> Any:
        try:
            return done(self.lua.call(name, KEYS, arguments))
        except ViewMisused as error:
            raise Refused(str(error)) from error


class OnServer:
    """A real Redis or Valkey, whose keys of the namespace `fuzz` are this target's own."""

    def __init__(self, url: str) -> None:
        made: Any = Redis.from_url(url.replace("valkey", "redis", 1), decode_responses=True)
        self._redis = made
        self._redis.execute_command("FUNCTION LOAD", "REPLACE", library_source())

    def put(self, content: Content) -> None:
        pipe = self._redis.pipeline()
        pipe.unlink(*KEYS)
        for key, held in content.items():
            if isinstance(held, dict):
                pipe.hset(key, mapping=held)
            else:
                pipe.zadd(key, dict.fromkeys(held, 0))
        pipe.execute()

    def content(self) -> Content:
        pipe = self._redis.pipeline()
        for number, key in enumerate(KEYS):
            pipe.hgetall(key) if number < 4 else pipe.zrange(key, 0, -1)
        found: Content = {}
        for key, held in zip(KEYS, pipe.execute(), strict=True):
            if held:
                found[key] = dict(sorted(held.items())) if isinstance(held, dict) else held
        return found

    def call(self, name: str, arguments: list[str]) -> Any:
        command = "FCALL_RO" if name in READS else "FCALL"
        try:
            return self._redis.execute_command(command, function(name), len(KEYS), *KEYS, *arguments)
        except ResponseError as error:
            raise Refused(str(error)) from error

    def close(self) -> None:
        self._redis.unlink(*KEYS)
        self._redis.close()


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Noting:
    """Functions that also note each call, so that it can be a seed."""

    def __init__(self, inner: Functions) -> None:
        self._inner = inner
        self.calls: list[list[str]] = []

    async def call(self, name: str, keys: Any, arguments: Any) -> Any:
        self.calls.append([name, *arguments])
        return await self._inner.call(name, keys, arguments)


NAMED_ALIKE = (
    JobSpec(id="vision/many.2", tenant="vision", array_of="vision/many", array_index=2),
    JobSpec(id="vision/many.3", tenant="vision", array_of="vision/many", array_index=3),
    JobSpec(id="search/many.0x", tenant="search"),
    JobSpec(id="vision/odd.0x", tenant="vision"),
    JobSpec(id="vision/odd.1", tenant="vision", array_of="vision/odd", array_index=1),
)
"""Two elements of an array, another behind a job that is named nearly so, and a job that is only named so."""


def seeds_and_views() -> tuple[list[bytes], list[Content]]:
    """Honest calls, and the contents of a view that is being built and of one that is whole."""
    here, log = InLua(), an_honest_log("vision/")
    log.write(*(JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST) for spec in NAMED_ALIKE))
    log.write(JobCancelled(job="vision/many.2"))
    noting, views = Noting(here.lua), list[Content]()
    view = CellView(noting, KEYS)
    done(view.begin_rebuild("p/1", None, 5))
    rows = list(all_rows(log.state, 3))
    for some in rows[:-1]:
        done(view.load_rows("p/1", some, 6))
    views.append(here.content())
    done(view.load_rows("p/1", rows[-1], 6))
    views.append(here.content())
    done(view.finish_rebuild("p/1", stand_of(log.state), totals_of(log.state)))
    views.append(here.content())
    expected = log.state.offset + 1
    log.write(enqueued("vision/late"))
    changed: Rows = next(iter(all_rows(log.state, 500)))
    done(view.apply(expected, stand_of(log.state), changed))
    calls = [
        *noting.calls,
        ["read_jobs", "", "", "10", "queued", "running"],
        ["read_jobs", "vision", "vision/a", "1", "queued"],
    ]
    calls += [["read_cursor"], ["read_job", "vision/first"], ["read_nodes"]]
    calls += [["read_tenants", "1", "queued", "running"]]
    calls += [["read_names", own, "queued", "running"] for own in ("first", "many", "many.3", "odd")]
    calls += [["read_arrays", "vision/first", "vision/many", "vision/odd"]]
    calls += [["read_queue", "default", "10"], ["read_summary", "queued", "running"]]
    return [json.dumps(call).encode() for call in calls], views


class Calls:
    """Makes each call in Lua on every view, and on the server too if there is one."""

    def __init__(self, views: list[Content], server: Server | None = None) -> None:
        self._views, self._here, self._server = views, InLua(), server

    def run(self, value: bytes) -> str:
        call = as_call(value)
        if call is None:
            return "no call"
        return " ".join([call[0], *(self._made(call, view) for view in self._views)])

    def _made(self, call: list[str], view: Content) -> str:
        answer = outcome(self._here, call, view)
        after = self._here.content()
        if answer[0] != "OK" or call[0] in READS:
            assert after == view, f"{answer} and yet something was written"
        elif call[0] != "begin_rebuild" and are_single(call):
            assert of_jobs(after) == [after.get(KEYS[4], []), after.get(KEYS[5], [])], "an index that does not fit"
        if self._server is not None:
            there = outcome(self._server, call, view)
            assert there[0] == answer[0], f"here {answer}, on the server {there}"
            assert answer[0] == "REFUSED" or in_order(there) == in_order(answer), (
                f"here {answer}, on the server {there}"
            )
            assert self._server.content() == after, "the server holds something else"
        return "FOUND" if is_found(call[0], answer) else str(answer[0])


def is_found(name: str, answer: list[Any]) -> bool:
    """Whether a read has found something."""
    return name in READS and answer[0] == "OK" and len(answer) > 4


def outcome(server: Server, call: list[str], view: Content) -> list[Any]:
    server.put(view)
    try:
        return list(server.call(call[0], call[1:]))
    except Refused as error:
        return ["REFUSED", str(error)]


def in_order(answer: list[Any]) -> list[str]:
    """Some answers are in no order, since a hash has none."""
    return sorted(map(str, answer))


def as_call(value: bytes) -> list[str] | None:
    """The call that the input is, if it is one. Words are text that can be written as UTF-8."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        return None
    if found[0] not in (*WRITES, *READS):
        return None
    flat = [word if isinstance(word, str) else json.dumps(word) for word in found]
    return [word.encode("utf-8", "replace").decode() for word in flat]


def are_single(call: list[str]) -> bool:
    """Whether each row, and each place in a queue, is named once: what the caller owes."""
    words = call[1:]
    places = [word.split("\n", 1)[0].split(" ", 2)[-1] for word in words if "\n" in word]
    ids = [word for word in words if "\n" not in word and not word.isdecimal()]
    return len(set(places) - {""}) == len([place for place in places if place]) and len(set(ids)) == len(ids)


def of_jobs(content: Content) -> list[list[str]]:
    """The two sorted sets that belong to the rows of the jobs."""
    waiting, index = dict[str, None](), dict[str, None]()
    rows = content.get(KEYS[1], {})
    assert isinstance(rows, dict), "rows are a hash"
    for job, row in rows.items():
        tenant, status, place = row.split("\n", 1)[0].split(" ", 2)
        index[f"s {status} {job}"] = index[f"t {tenant} {status} {job}"] = None
        if place:
            waiting[place] = None
    return [sorted(waiting, key=str.encode), sorted(index, key=str.encode)]


def view_target(name: str, server: Server | None, share: int) -> Target:
    seeds, views = seeds_and_views()
    return Target(
        name,
        Calls(views, server).run,
        corpus_of("view", seeds),
        share,
        tuple(f"{read} NOT_READY NOT_READY FOUND" for read in READS),
    )
