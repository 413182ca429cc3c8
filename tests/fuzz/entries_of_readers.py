"""What those get who follow the log, take up its dead letters, or ask the view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from fallow.services.executor.policy.turn import Now
from fallow.services.executor.service import ExecutorService
from fallow.services.metrics.service import MetricsService
from fallow.services.projector.app.apply import Touched, rows_of_touched
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.plan import plan_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.fold.fold import DamagedLog, fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import Undecodable, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.fields.value import replace
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.log.inputs.dead_letters import dead_letter
from fallow.shared.log.inputs.letters import letter_of, noted_replay, original_of
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.machine.snapshot import Collector, DamagedSnapshot, RowsDigest, build, cut, manifest_of
from fallow.shared.log.port import Record
from fallow.shared.log.reading import event_of, log_record
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.view.reader import NoSuchCell, ViewReader, ViewRebuilding
from fallow.shared.view.store import ViewUnavailable
from tests.fuzz.entries import Entry, record_of
from tests.fuzz.pace import NOT_COUNTED, Turns
from tests.fuzz.targets import CELL_TEXT, living
from tests.fuzz.view_functions import InLua, done, outcome, seeds_and_views
from tests.histories import History

# All that follow the log.


class Followers:
    """A state, and what each reader of the log does with a record behind it."""

    def __init__(self) -> None:
        self._state = living()
        self._fair = deepcopy(self._state.fair)
        self.seeds = tuple(self._next_decisions(History(3), 120, 30))

    def _next_decisions(self, history: History, behind: int, count: int) -> Iterator[bytes]:
        """Decisions any of which may come next."""
        history.decisions(behind)
        for _ in range(count):
            own, mark = own_of(history.state), history.state.checkpoint()
            fair = deepcopy(history.state.fair)
            yield encode(history.decide())
            put_back(history.state, mark, own, fair)

    def work(self, value: bytes) -> Turns:
        """One record of the decision log, folded; what metrics, projector, executor and queueing do behind it."""
        state = self._state
        headers = ((CHAIN_HEADER, next_chain(state.chain, value).encode()),)
        plain = record_of("decisions", Decision.type, value)
        record = Record(plain.topic, 0, state.offset + 1, b"key", value, (*plain.headers, *headers), 1_000)
        own, mark = own_of(state), state.checkpoint()
        metrics, touched = MetricsService(state), Touched()
        executor = ExecutorService(state.cell, [node.spec for node in state.nodes.values()], 1)
        executor.take_over(0, state, 10, lambda _: (), NOW)
        yield NOT_COUNTED
        read = log_record(record, None)
        yield "decoded"
        if isinstance(read.decision, Decision):
            metrics.before(state, read.decision.at_ms)
            touched.note(state, read.decision)
        yield "noted"
        try:
            fold(state, read)
            word = "folded" if state.version > own[0] else "skipped"
        except DamagedLog as error:
            word = f"damaged: {str(error).split(':')[-1][:20]}"
        yield word
        if word == "folded" and isinstance(read.decision, Decision):
            metrics.take(state, read.decision)
            yield "metrics"
            rows_of_touched(state, touched).arguments()
            yield "projector"
            executor.decided(state, [read.decision], NOW)
            yield "executor"
            plan_of(state, QUEUES, state.at_ms)
            plan_starts(state, QUEUES, state.at_ms, PLANNED_MAX, estimator_of(state))
            yield "queueing"
        put_back(state, mark, own, deepcopy(self._fair))
        yield NOT_COUNTED


NOW = Now(1_000, 1_000, 1_000)
QUEUES = parse_cell_file(CELL_TEXT, "cell").cells[0].queues
PLANNED_MAX = 8
Own = tuple[int, str, int, int, dict[str, int]]


def own_of(state: CellState) -> Own:
    return (state.version, state.chain, state.at_ms, state.offset, dict(state.inputs))


def put_back(state: CellState, mark: Any, own: Own, fair: Any) -> None:
    """As it was before a record."""
    state.rollback(mark)
    state.version, state.chain, state.at_ms, state.offset, inputs = own
    state.inputs, state.fair = dict(inputs), fair


def snapshot(value: bytes) -> Turns:
    """A chunk that is a whole snapshot, with a manifest that vouches for it."""
    yield NOT_COUNTED
    event = event_of(record_of("snapshots", SnapshotChunk.type, value))
    yield "decoded"
    if not isinstance(event, SnapshotChunk):
        return
    state, digest, collector = living(), RowsDigest(), Collector()
    digest.add(event.rows)
    chunk = replace(event, snapshot="s", part=0)
    manifest = manifest_of(state, "s", slot="newest", parts=1, digest=digest.hexdigest())
    yield NOT_COUNTED
    collector.add_chunk(chunk)
    collector.add_manifest(manifest)
    yield "whole" if collector.newest is not None else "torn"
    if collector.newest is None:
        return
    try:
        yield from ("read" for _ in build(CellState(state.cell), collector.newest))
        yield "a state"
    except DamagedSnapshot as error:
        yield str(error)[-20:]


def letter(value: bytes) -> Turns:
    """A record with headers of any bytes, set aside and taken up again."""
    key, *parts = value.split(b"\0")
    headers = tuple((part[:9].decode("utf-8", "replace"), part[9:]) for part in parts)
    record = Record("t.submissions", 0, 0, key[:2_000], key, headers, 0)
    yield NOT_COUNTED
    event = event_of(record)
    yield "read"
    if isinstance(event, Undecodable):
        out = dead_letter(Dead(record, event.reason, str(event)), service="admission", namespace="t")
        yield "set aside"
        found = Record(out.topic, 0, 0, out.key, out.value, out.headers, 0)
        noted_replay(found)
        yield type(original_of(letter_of(found), "t")).__name__


def log_entries() -> list[Entry]:
    followers, state = Followers(), living()
    chunks = [encode(chunk) for chunk in cut(state, "s")]
    headers = b"{}" + b"".join(b"\0ce_type12" + b"x" * number for number in (0, 3, 500))
    return [
        Entry("followers/decisions", followers.work, followers.seeds, "queueing"),
        Entry("followers/snapshots", snapshot, tuple(chunks), "a state"),
        Entry("dead-letters", letter, (headers,), "Outgoing"),
    ]


# The view.


class Saying:
    """Functions that answer what they are told to."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        return self._answer


READS: Mapping[str, Callable[[ViewReader], Any]] = {
    "read_job": lambda reader: reader.job("main", "a"),
    "read_jobs": lambda reader: reader.jobs("main"),
    "read_nodes": lambda reader: reader.nodes("main"),
    "read_tenants": lambda reader: reader.tenants("main"),
    "read_names": lambda reader: reader.names("main", "a"),
    "read_arrays": lambda reader: reader.arrays("main", ["a"]),
    "read_queue": lambda reader: reader.queue("main", "default"),
    "read_summary": lambda reader: reader.summary("main"),
}


def view_answer(read: Callable[[ViewReader], Any], value: bytes) -> Turns:
    """What Redis answers to a reader."""
    try:
        answer = json.loads(value)
    except (ValueError, RecursionError):
        return
    if not isinstance(answer, list) or not answer or not isinstance(answer[0], str):
        return  # no function of ours answers so
    yield NOT_COUNTED
    try:
        done(read(ViewReader(Saying(answer), "t")))
        yield "read"
    except (ViewUnavailable, ViewRebuilding, NoSuchCell) as error:
        yield type(error).__name__


def view_entries() -> Iterator[Entry]:
    calls, views = seeds_and_views()
    here = InLua()
    for name, read in READS.items():
        seeds = [
            json.dumps(outcome(here, json.loads(call), views[-1])) for call in calls if f'"{name}"' in call.decode()
        ]
        yield Entry(f"view/{name}", partial(view_answer, read), tuple(seed.encode() for seed in seeds), "read")
