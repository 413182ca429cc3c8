"""A simulated Redis: the view's functions in this process, with answers that come late, never, or of an older past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fallow.shared.view.keys import keys_of
from fallow.shared.view.lupa_view import LuaFunctions, Store
from fallow.shared.view.store import ViewUnavailable
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import ViewRows
from fallow.simulator.network import REDIS, Network
from fallow.simulator.trouble.faults import Fault, Faults

T = TypeVar("T")

NAMESPACE = "sim"
TIMEOUT_MS = 300
KEPT_EVERY_MS = 700
KEPT_MAX = 4


class Call:
    """One call of a function, for whose answer a process waits."""

    def __init__(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> None:
        self.name, self.keys, self.arguments = name, keys, arguments


def answer_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError("a call in this process waited")


class Redis:
    """The server. It keeps a few of its pasts, to come back to one of them."""

    def __init__(self, engine: Engine, faults: Faults, network: Network) -> None:
        self._engine, self._faults, self._network = engine, faults, network
        self.functions = LuaFunctions()
        self._kept: list[Store] = []
        self._kept_ms = 0

    def perform(self, who: str, call: Call, answer: Callable[[Any], None]) -> None:
        """Do what a process asks; the answer comes later, and may be an error to be raised."""
        faults, engine = self._faults, self._engine
        is_reached = self._network.reaches(who, REDIS) and not self.functions.is_away
        if not is_reached or faults.happens(Fault.REDIS_AWAY, f"{call.name} of {who} does not arrive"):
            engine.after(TIMEOUT_MS, lambda: answer(ViewUnavailable("no answer")))
            return
        if faults.happens(Fault.REDIS_LATE, f"{call.name} of {who}"):
            engine.after(TIMEOUT_MS + engine.between(-250, 1_500), lambda: self._do(call))
            engine.after(TIMEOUT_MS, lambda: answer(ViewUnavailable("no answer in time")))
            return
        engine.after(engine.between(1, 3), lambda: answer(self._do(call)))

    def _do(self, call: Call) -> Any:
        if self.functions.is_away:
            return ViewUnavailable("away")
        self._keep()
        return answer_of(self.functions.call(call.name, call.keys, call.arguments))

    def _keep(self) -> None:
        """Remember how it was, now and then."""
        if self._faults.intervals_ms[Fault.REDIS_TAIL] and self._engine.now_ms - self._kept_ms >= KEPT_EVERY_MS:
            self._kept_ms = self._engine.now_ms
            self._kept = [*self._kept, self.functions.keep()][-KEPT_MAX:]

    # What happens to it.

    def lose_tail(self) -> None:
        """Come back as it was a while ago."""
        if self._kept:
            self.functions.lose_tail(self._kept[0])
            self._kept = self._kept[:1]

    def flush(self) -> None:
        """Lose everything."""
        self.functions.flush()

    def go_away(self, for_ms: int) -> None:
        """Answer no client for so long."""
        self.functions.is_away = True
        self._engine.after(for_ms, self._come_back)

    def _come_back(self) -> None:
        self.functions.is_away = False

    # What any reader can see of it.

    def rows(self, cell: str) -> ViewRows | None:
        """Everything that the view of a cell shows now; None while there is no whole one."""
        meta, jobs, nodes, tenants = (
            {name.decode(): value.decode() for name, value in self.functions.store.hashes.get(key.encode(), {}).items()}
            for key in keys_of(NAMESPACE, cell)[:4]
        )
        if meta.get("ready") != "1":
            return None
        return ViewRows(
            self._engine.now_ms,
            cell,
            int(meta["cursor"]),
            int(meta["version"]),
            meta["chain"],
            jobs,
            nodes,
            tenants,
            self._positions(cell),
        )

    def _positions(self, cell: str) -> dict[str, int]:
        waiting = self.functions.store.names.get(keys_of(NAMESPACE, cell)[4].encode())
        found: dict[str, int] = {}
        before: Counter[str] = Counter()
        for name in waiting.names if waiting is not None else ():
            queue, *_, job = name.decode().split(" ")
            found[job] = before[queue]
            before[queue] += 1
        return found
