"""The projector of one cell in the simulated world: the real steps of the view, each call a wait of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from services.projector.service import Patience
from services.simulator.follower import Follower
from services.simulator.process import Process, Waker
from services.simulator.redis import NAMESPACE, Call, RemoteFunctions
from shared.log.port import LogUnavailable
from shared.view.keys import keys_of
from shared.view.machine import Projection
from shared.view.steps import Outcome, Took, take_step
from shared.view.store import CellView, ViewUnavailable

CHECK_MS = 1_000
PACE_MS = 60
AGAIN_MS = 250
SETBACKS = (Outcome.BUSY, Outcome.REBUILD_LOST)


class ProjectorPart:
    """One cell in a projector process. While another one owns the cell it folds along and leaves the view alone."""

    joins_by_itself = False

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._ordinal = self._world.ordinal(cell)
        self._waker = Waker(process, self._step)
        self._view = CellView(RemoteFunctions(), keys_of(NAMESPACE, cell))
        self._projection, self._patience = Projection(), Patience()
        self._follower: Follower | None = None
        self._open: Coroutine[Any, Any, Took] | None = None
        self._holds = self._has_caught_up = False
        self._steps = self._check_ms = 0

    def begin(self) -> None:
        """Ask first where the view stands: what is folded behind that is what it lacks."""
        self._follower = Follower(self._process, self._cell, self._waker, self._projection.before_fold)
        self._take_step()

    def end(self) -> None:
        """Hear no more; what is under way comes to no end."""
        if self._follower is not None:
            self._follower.close()
        if self._open is not None:
            self._open.close()

    def told(self, owned: frozenset[int]) -> None:
        """Bring the view while the cell is ours."""
        self._holds = self._ordinal in owned
        self._waker.within(1)

    def _step(self) -> None:
        if self._open is not None or self._follower is None:
            return
        try:
            if self._has_caught_up:
                self._follower.poll()
            else:
                self._follower.catch_up()
                self._has_caught_up = True
        except LogUnavailable:
            self._waker.within(AGAIN_MS)
            return
        if self._holds:
            self._bring_view()

    def _bring_view(self) -> None:
        now_ms = self._process.monotonic_ms
        if now_ms >= self._check_ms:
            self._projection.look_again()
            self._check_ms = now_ms + CHECK_MS
        if now_ms < self._patience.not_before_ms:
            self._waker.within(self._patience.not_before_ms - now_ms)
        else:
            self._take_step()

    def _take_step(self) -> None:
        assert self._follower is not None, "begun together"
        self._steps += 1
        rebuild_id = f"{self._process.name}/{self._process.incarnation}-{self._steps}"
        state = self._follower.state
        self._open = take_step(
            self._view, self._projection, state, rebuild_id=rebuild_id, wall_ms=lambda: self._process.cell_ms
        )
        self._go_on(None)

    def _go_on(self, answer: Any) -> None:
        """Go on with the step that is under way, up to its next call or its end."""
        assert self._open is not None, "an answer comes to whoever has asked"
        try:
            call = self._open.throw(answer) if isinstance(answer, Exception) else self._open.send(answer)
        except StopIteration as stop:
            self._open = None
            self._took(stop.value)
        except ViewUnavailable:
            self._open = None
            self._fail()
        else:
            assert isinstance(call, Call), "nothing else waits here"
            self._world.redis.perform(self._process.name, call, self._world.reply(self._process, self._go_on))

    def _took(self, took: Took) -> None:
        if took.outcome in SETBACKS:
            self._fail()
            return
        self._patience.succeeded()
        if took.outcome is Outcome.LOOK_FOR_END:
            try:
                self._projection.log_ends_at(self._world.broker.end(("decisions", self._ordinal)))
            except LogUnavailable:
                self._waker.within(AGAIN_MS)
                return
        is_done = took.outcome in (Outcome.RESTED, Outcome.APPLIED)
        self._waker.within(CHECK_MS if took.outcome is Outcome.RESTED else PACE_MS if is_done else 1)

    def _fail(self) -> None:
        self._patience.failed(self._process.monotonic_ms, self._world.engine.chance.random())
        self._waker.within(max(1, self._patience.not_before_ms - self._process.monotonic_ms))
