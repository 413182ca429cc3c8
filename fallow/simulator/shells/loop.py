"""An event loop of asyncio on the engine's virtual time: one for each life of a simulated process.

All loops of a world share the engine's heap, so that everything has one order: handles of one loop run in the order in
which they were planned, and the loops in the order of the moments in which they woke. A turn runs what is ready now.
Between any two handles the process may die or stand still; what is planned for a dead one never runs, and what is
planned for one that stands still runs when it wakes.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from fallow.simulator.engine import Engine
from fallow.simulator.process import ORIGIN_MS

_get_running_loop = events._get_running_loop  # noqa: SLF001 - asyncio's own way to name the loop that runs
_set_running_loop = events._set_running_loop  # noqa: SLF001

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURNS_AT_ONCE_MAX = 1_000
"""So many turns take no time: a loop that never waits for anything does not stop the world's clock for ever."""

PURGE_FIRST = 64

AWAITS_MAX = 1_000
"""No coroutine waits so often on its way out."""


class Life(Protocol):
    """The process whose loop this is, as far as the loop must know."""

    paused_until_ms: int

    def woke(self) -> Blow | None:
        """The process wakes from a wait. What hits it in the course of this, and behind how many handles."""

    def failed(self, error: BaseException) -> None:
        """A callback raised this: a defect."""


Blow = tuple[int, Callable[[], None]]
"""After so many more handles this happens to the process."""


class NumberedTask(asyncio.Task[T]):
    """A task whose place in a set does not hang on its address: asyncio keeps sets of tasks and walks through them."""

    _number = 0

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        """`number` is the task's own in its loop."""
        self._number = number
        super().__init__(*args, **kwargs)
        self._log_destroy_pending = False  # a process that dies lets go of its tasks as they are

    def __hash__(self) -> int:
        """A number that is alike in each run of a seed."""
        return self._number


class _Handle(asyncio.Handle):
    """A handle that does not ask its loop whether it is debugged: loops of a world make thousands a second."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Sequence[object], loop: VirtualLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None

    def cancel(self) -> None:
        """It never runs."""
        _let_go(self)


class _Timer(asyncio.TimerHandle):
    """A numbered handle that is due later. The world's engine orders them, not their times."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[object],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, False

    def cancel(self) -> None:
        """It stays in the engine's heap, and nothing comes of it."""
        _let_go(self)


def _let_go(handle: _Handle | _Timer) -> None:
    """What a cancelled handle would have called is needed no more."""
    handle._cancelled = True  # noqa: SLF001 - as asyncio's own handles do
    handle._callback = handle._args = None  # type: ignore[assignment]  # noqa: SLF001


class VirtualLoop(asyncio.AbstractEventLoop):
    """What asyncio needs of a loop, without a network, threads or signals."""

    def __init__(self, engine: Engine, life: Life) -> None:
        self._engine, self._life = engine, life
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._purge_at = PURGE_FIRST
        self._numbers = count()
        self._is_planned = self._is_running = self._is_dead = False
        self._turn_ms, self._turns = -1, 0
        self._blow: Blow | None = None

    # Time.

    def time(self) -> float:
        """Virtual seconds."""
        return (self._engine.now_ms + ORIGIN_MS) / 1000

    # Handles.

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """In the next turn."""
        handle = _Handle(callback, args, self, context)
        if not self._is_dead:
            self._ready.append(handle)
            if not (self._is_planned or self._is_running):
                self._plan(self._engine.now_ms)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """So many seconds later, rounded up to a millisecond."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """At this time of the loop, rounded up to a millisecond."""
        timer = _Timer(when, callback, args, self, context)
        if not self._is_dead:
            self._engine.at(-int(-(when * 1000 - 0.001) // 1) - ORIGIN_MS, lambda: self._put(timer))
        return timer

    def _put(self, handle: asyncio.Handle) -> None:
        if self._is_dead or handle._cancelled:  # noqa: SLF001 - as in asyncio's own loop
            return
        self._ready.append(handle)
        if not (self._is_planned or self._is_running):
            self._plan(self._engine.now_ms)

    def _plan(self, at_ms: int) -> None:
        self._is_planned = True
        self._engine.at(at_ms, self._turn)

    # Turns.

    def _turn(self) -> None:
        """Run what is ready now; what becomes ready meanwhile waits for the next turn, as in asyncio's own loop. Turns
        follow each other without the heap while nothing else is due.
        """
        self._is_planned = False
        engine = self._engine
        if self._is_dead:
            return
        if engine.now_ms < self._life.paused_until_ms:
            self._plan(self._life.paused_until_ms)
            return
        if engine.now_ms != self._turn_ms:
            self._turn_ms, self._turns = engine.now_ms, 0
            if self._blow is None:
                self._blow = self._life.woke()
        before = _get_running_loop()
        _set_running_loop(self)
        try:
            while True:
                self._turns += 1
                engine.steps += 1
                self._run()
                if not self._go_on():
                    return
        finally:
            _set_running_loop(before)

    def _run(self) -> None:
        ready, blow = self._ready, self._blow
        most = len(ready)
        if blow is not None:
            most = min(most, blow[0])
            self._blow = (blow[0] - most, blow[1])
        self._is_running = True
        try:
            for _ in range(most):
                if not ready:
                    return  # the process has ended by what it did
                handle = ready.popleft()
                if not handle._cancelled:  # noqa: SLF001 - that is what a loop does with it
                    handle._run()  # noqa: SLF001
        finally:
            self._is_running = False

    def _go_on(self) -> bool:
        """Strike, if a blow is due or the process falls asleep before it; else plan the next turn. Whether it may
        follow at once instead.
        """
        if self._is_dead:
            return False
        blow = self._blow
        if blow is not None and (blow[0] <= 0 or not self._ready):
            self._blow = None
            blow[1]()
        if not self._ready or self._is_planned:  # a blow that kills has left nothing that is ready
            return False
        is_paused = self._engine.now_ms < self._life.paused_until_ms
        if self._turns % TURNS_AT_ONCE_MAX and not is_paused and self._engine.is_free:
            return True
        self._plan(self._engine.now_ms + (self._turns % TURNS_AT_ONCE_MAX == 0))
        return False

    # Tasks.

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop, which knows it until it is done."""
        number = next(self._numbers)
        task: NumberedTask[T] = NumberedTask(number, coro, loop=self, name=name or f"task-{number}", context=context)
        # No code asks asyncio for the tasks of a world. Those of the dead would stay in its set until memory is swept,
        # many of one number: the more worlds a process has run, with the more of them each new task would be compared.
        asyncio._unregister_task(task)  # noqa: SLF001 - so named for loops
        self._tasks.append(task)
        if len(self._tasks) >= self._purge_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._purge_at = 2 * len(self._tasks) + PURGE_FIRST
        return task

    def die(self) -> None:
        """Nothing of this loop ever runs again. Its tasks are closed in the order in which they were made: what they do
        on their way out meets ports that refuse.
        """
        self._is_dead = True
        self._ready.clear()
        with self.as_running():
            for task in self._tasks:  # on its way out one may make another, which is closed in its turn
                if not task.done():
                    _close(task)
        self._tasks = []

    @contextmanager
    def as_running(self) -> Iterator[None]:
        """What is begun here belongs to this loop."""
        before = _get_running_loop()
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(before)

    # The rest that asyncio asks for.

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether one of its handles runs now."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether its process is dead."""
        return self._is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that raised is a defect. An error of a task that was never retrieved is reported when memory is
        swept, which is no moment of the world.
        """
        error = context.get("exception")
        if "handle" in context and error is not None:
            self._life.failed(error)


def _close(task: asyncio.Task[Any]) -> None:
    """End a coroutine where it stands, and again at each await of its way out."""
    coroutine = task.get_coro()
    for _ in range(AWAITS_MAX):
        try:
            coroutine.throw(GeneratorExit)
        except (Exception, GeneratorExit):  # noqa: BLE001 - it is dead: its errors reach no reader
            return
