"""A cell's log and view as services would leave them, for the commands and the client to read."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.projector.app.apply import all_rows, stand_of, totals_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.port import Log, Outgoing, Record
from fallow.shared.view.keys import keys_of
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import CellView


async def publish(log: Log, records: Sequence[Record], namespace: str) -> None:
    """Put records into the cell's partition of the decision log."""
    await log.publish(
        [
            Outgoing(f"{namespace}.decisions", record.value, record.key, record.headers, partition=0)
            for record in records
        ]
    )


async def show(redis_url: str, namespace: str, state: CellState, seen: int | None = None) -> None:
    """Build the view of this state, in place of the one at the cursor `seen`."""
    functions = RedisFunctions(redis_url, loads=True)
    view = CellView(functions, keys_of(namespace, state.cell))
    await view.begin_rebuild("test/1", seen, 0)
    for rows in all_rows(state, 500):
        await view.load_rows("test/1", rows, 0)
    await view.finish_rebuild("test/1", stand_of(state), totals_of(state))
    await functions.stop()
