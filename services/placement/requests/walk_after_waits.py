"""When the walk is put off until jobs are in their lines whose waits have ended."""

from __future__ import annotations

from fallow.shared.cluster.model.state import CellState

PUT_OFF_MOST = 64
"""Decisions in a row without a walk: 64 times what one of them settles is more than becomes ready at once."""


class WalkAfterWaits:
    """Of jobs that come to be ready together none starts before all of them are in their lines, so it decides nothing
    which of very many are told first.

    What ends meanwhile comes behind that walk, and after some decisions jobs start all the same: no tenant keeps a cell
    from starting jobs by making waits end all the time.
    """

    def __init__(self) -> None:
        self._last: tuple[str | None, str | None] | None = None
        self._put_off = 0

    def forget(self) -> None:
        """Of another writer nothing is known."""
        self._last, self._put_off = None, 0

    def puts_off(self, state: CellState) -> bool:
        """Whether this decision starts nothing. Ends are told in the order in which they came."""
        if not state.has_waits_to_settle:
            self.forget()
            return False
        if self._last is None:
            self._last = next(reversed(state.ends_untold), None), next(reversed(state.dependencies_resolved), None)
        end, job = self._last
        if self._put_off < PUT_OFF_MOST and (end in state.ends_untold or job in state.dependencies_resolved):
            self._put_off += 1
            return True
        self.forget()
        return False
