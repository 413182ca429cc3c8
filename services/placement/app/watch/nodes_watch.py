"""What a writer knows of topic `nodes`: where it ends, what it held before, and whether it is read late."""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.placement.app.metrics import CellMetrics
from fallow.services.placement.app.watch.look_back import REACH_MS_MAX, LookBack
from fallow.services.placement.app.watch.nodes_end import NodesEnd
from fallow.services.placement.lifecycle.nodes.leases import pause_ms
from fallow.services.placement.service import PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.lease import longest_patience_ms
from fallow.shared.events.operations import CellPolicy
from fallow.shared.log.port import Log, TopicPartition
from fallow.shared.runtime.process import Context


class NodesWatch:
    """Of one cell while this process writes it. Leases run by what it tells the service."""

    def __init__(
        self,
        context: Context[PlacementSettings],
        log: Log,
        tp: TopicPartition,
        service: PlacementService,
        metrics: CellMetrics,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when there is something new to look at."""
        self._context, self._host, self._service, self._metrics = context, context.host, service, metrics
        self._cell, self._wake = service.state.cell, wake
        self._end, self._look_back = NodesEnd(log, tp, wake), LookBack(log, tp, context.host.monotonic_ms)

    def begin(self) -> None:
        """The process has taken the cell over. Where its leases begin anew, look how long the nodes are silent. The
        times of the embedded broker are made up, so there nothing follows from them.
        """
        if self._service.has_new_leases and not self._context.settings.embedded:
            policy = self._policy
            reach_ms = (
                min(REACH_MS_MAX, longest_patience_ms(self._service.state)) + self._context.settings.clock_bound_wall_ms
            )
            self._look_back.begin(self._host.wall_ms() - reach_ms, pause_ms(policy), self._wake)

    def look(self, *, is_fenced: bool) -> bool:
        """Hand over what is known by now, and say so where the topic is not read for long: no lease runs out
        meanwhile. `is_fenced`: nothing is known of the topic. Whether there was anything new.
        """
        now_ms, lease_ms = self._host.monotonic_ms(), self._policy.node_lease_wall_ms
        earlier, end = self._look_back.take_answer(), self._end.ask(now_ms, lease_ms)
        if earlier is not None and not is_fenced:
            self._service.nodes_said(*earlier)
        if end is not None and not is_fenced:
            self._service.nodes_end(*end)
        unread_ms = self._service.nodes_unread_ms(now_ms)
        self._metrics.unread.set(unread_ms / 1000)
        text = f"reports of nodes wait unread for {unread_ms // 1000} s: no node of cell {self._cell} is declared lost"
        if not self._service.hears_nodes:
            text += ", and nothing new is started"
        self._context.health.noted(self._note, text if unread_ms > lease_ms else None)
        return end is not None or earlier is not None

    def due_in_ms(self) -> int:
        """How long until it is time to look."""
        return self._end.due_in_ms(self._host.monotonic_ms(), self._policy.node_lease_wall_ms)

    async def stop(self) -> None:
        """The process no longer writes the cell."""
        await self._look_back.stop()
        await self._end.stop()
        self._metrics.unread.set(0)
        self._context.health.noted(self._note, None)

    @property
    def _note(self) -> str:
        return f"nodes of {self._cell} unread"

    @property
    def _policy(self) -> CellPolicy:
        return self._service.state.policy
