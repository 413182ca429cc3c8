"""Clients who look at the view: what each is told is written down."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.events.submissions import SubmitJob
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.store import ViewUnavailable
from fallow.simulator.history.record import ViewAnswer
from fallow.simulator.storage.redis import NAMESPACE, answer_of

if TYPE_CHECKING:
    from fallow.simulator.world import World

READ_EVERY_MS = 350
WHOLE_EVERY_MS = 2_000
NO_ANSWER = (NoSuchCell, ViewBehind, ViewRebuilding, ViewUnavailable)


class Readers:
    """One client that says what it has seen, one that does not, and one that looks at everything now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reader = ViewReader(world.redis.functions, NAMESPACE)
        submitted = [item.event for item in world.items if isinstance(item.event, SubmitJob)]
        self._jobs = [(event.job.cell or "", event.key()) for event in submitted]
        self._seen: dict[str, int] = {}
        if self._jobs:
            for name in ("careful", "careless"):
                self._plan(name)
        world.engine.after(WHOLE_EVERY_MS, self._look_at_all)

    def _plan(self, name: str) -> None:
        self._world.engine.after(self._world.engine.between(1, 2 * READ_EVERY_MS), partial(self._read, name))

    def _read(self, name: str) -> None:
        world, (cell, job) = self._world, self._world.engine.chance.choice(self._jobs)
        client = f"{name} of {cell}"
        at_least = self._seen.get(client, 0) if name == "careful" else None
        try:
            read = answer_of(self._reader.job(cell, job, at_least=at_least))
        except NO_ANSWER:
            self._plan(name)
            return
        self._seen[client] = read.version
        row = read.value
        status, attempt = (None, None) if row is None else (row.status.value, row.attempt)
        world.history.answers.append(
            ViewAnswer(world.engine.now_ms, client, cell, read.version, at_least, job, status, attempt)
        )
        self._plan(name)

    def _look_at_all(self) -> None:
        self.look_at_all()
        self._world.engine.after(WHOLE_EVERY_MS, self._look_at_all)

    def look_at_all(self) -> None:
        """Write down all that the views show now."""
        for oracle in self._world.oracles:
            rows = self._world.redis.rows(oracle.cell)
            if rows is not None:
                self._world.history.views.append(rows)
