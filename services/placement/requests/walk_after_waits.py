"""When the walk is put off until jobs are in their lines whose waits have ended."""

from __future__ import annotations

from fallow.shared.cluster.model.state import CellState

PUT_OFF_MAX = 4
"""Decisions in a row without a walk: some thousand jobs that come to be ready together go in their order, and no other
job waits long for that.
"""


class WalkAfterWaits:
    """Of jobs that come to be ready together none starts before all of them are in their lines. After a few decisions
    jobs start all the same: no tenant keeps a cell from starting jobs by making very many waits end, or some all the
    time.
    """

    def __init__(self) -> None:
        self._put_off = 0
        self.is_owed = False
        """Whether the next walk waits no longer: until it was made no further wait is settled, which could
        fill each record.
        """

    def walked(self) -> None:
        """A walk was made, or nothing is known of those of another writer."""
        self._put_off, self.is_owed = 0, False

    def puts_off(self, state: CellState) -> bool:
        """Whether this decision starts nothing."""
        if self.is_owed or not state.has_waits_to_settle:
            return False
        self.is_owed = self._put_off >= PUT_OFF_MAX
        self._put_off += 1
        return not self.is_owed
