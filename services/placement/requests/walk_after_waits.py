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
        self.is_owed = False
        """Whether the next walk waits for nobody any more: until it was made no further wait is settled, which could
        fill each record.
        """

    def walked(self) -> None:
        """A walk was made, or nothing is known of those of another writer."""
        self._last, self._put_off, self.is_owed = None, 0, False

    def puts_off(self, state: CellState) -> bool:
        """Whether this decision starts nothing. Ends are told in the order in which they came."""
        if self.is_owed or not state.has_waits_to_settle:
            return False
        if self._last is None:
            self._last = next(reversed(state.ends_untold), None), next(reversed(state.dependencies_resolved), None)
        end, job = self._last
        self.is_owed = self._put_off >= PUT_OFF_MOST or not (
            end in state.ends_untold or job in state.dependencies_resolved
        )
        self._put_off += 1
        return not self.is_owed
