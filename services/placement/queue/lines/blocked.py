"""The classes that were found not to fit, and which of them are tried again when something has become free.

Few are all tried again at once. Of many a walk tries so many only: tenants take turns, so that one with any number of
classes of its own holds up no other tenant's, and of each the first in order come first. What was not reached keeps its
turn. What asks for more GPUs on a node than any node has free is left alone: it would come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from fallow.services.placement.queue.lines.row import Ask, Need, Row
from fallow.shared.cluster.model.queue_order import Order

AGAIN_MAX = 128
"""So many classes are tried again in one walk; one whose last look for places was dear counts as several."""

OF_A_TENANT = 16
"""So many of one tenant's before it is another one's turn."""

ASKS_MAX = 64
"""So many asks of one tenant are told apart."""

ANY: Ask = ((), None, 0)
"""What may fit whenever something has become free."""

Place = tuple[int, Order]
"""Where the first job of a class stood when it was found not to fit: the number of its queue, and its place there."""

Entry = tuple[Place, int, Need | Row]
MayFit = Callable[[Ask], bool]


class Asking:
    """Those of one tenant that ask for the same. Each is tried once in a round, the first in order first."""

    __slots__ = ("_later", "_now", "begun")

    def __init__(self, begun: int) -> None:
        """`begun`: how often something had become free when the round began; None where none has begun."""
        self._now: list[Entry] = []
        self._later: list[Entry] = []
        self.begun: int | None = begun

    def __len__(self) -> int:
        """How many there are, also of those that are not blocked any more."""
        return len(self._now) + len(self._later)

    def add(self, entry: Entry) -> None:
        """This one was just tried in vain."""
        self._later.append(entry)

    def pop(self) -> Entry:
        """The first that was not tried in this round."""
        return heappop(self._now)

    def goes_on(self, freed: int, *, may_fit: bool) -> bool:
        """Whether one of these is still to be tried, now that something has become free so often."""
        if not may_fit:  # each would be tried in vain: when one may fit again, the first in order comes first
            self._gather(None)
        elif self.begun is None or not (self._now or self.begun == freed):
            self._gather(freed)
        return may_fit and bool(self._now)

    def _gather(self, begun: int | None) -> None:
        self.begun = begun
        if len(self._later) > len(self._now) // 8:
            self._now += self._later
            heapify(self._now)
        else:
            for entry in self._later:
                heappush(self._now, entry)
        self._later = []


class Blocked:
    """All of a cell's classes that wait for something to change."""

    __slots__ = ("_asking", "_due", "_freed", "_numbers", "_of")

    def __init__(self) -> None:
        self._of: dict[Need | Row, int] = {}
        self._asking: dict[str, dict[Ask, Asking]] = {}
        self._due: dict[str, None] = {}
        self._freed = 0
        self._numbers = count()

    def __len__(self) -> int:
        """How many are blocked."""
        return len(self._of)

    def __contains__(self, item: Need | Row) -> bool:
        """Whether it is one of them."""
        return item in self._of

    def add(self, item: Need | Row, tenant: str, ask: Ask, place: Place) -> None:
        """This one does not fit, whose first job stands at this place."""
        number = self._of[item] = next(self._numbers)
        asking = self._asking.setdefault(tenant, {})
        if ask not in asking and len(asking) >= ASKS_MAX:
            ask = ANY
        found = asking.get(ask)
        if found is None:
            found = asking[ask] = Asking(self._freed)
        found.add((place, number, item))

    def drop(self, item: Need | Row) -> None:
        """It is blocked no more, or no job waits in it."""
        self._of.pop(item, None)

    @property
    def are_due(self) -> bool:
        """Whether some are still to be tried since something has become free."""
        return bool(self._due)

    def free(self) -> None:
        """Something has become free: each is to be tried again."""
        self._freed += 1
        self._due.update(dict.fromkeys(self._asking))

    def take(self, may_fit: MayFit) -> list[Need | Row]:
        """Those whose turn it is to be tried again now; they are blocked no more."""
        if len(self._of) <= AGAIN_MAX and _tries(self._of) <= AGAIN_MAX:
            found, self._due = list(self._of), {}
            self._of, self._asking = {}, {}
            return found
        found, left = [], AGAIN_MAX
        while self._due and left > 0:
            tenant = next(iter(self._due))
            del self._due[tenant]
            taken, has_more = self._take_of(tenant, min(OF_A_TENANT, left), may_fit)
            found += taken
            left -= _tries(taken)
            if has_more:
                self._due[tenant] = None  # behind all others
        return found

    def walked(self, may_fit: MayFit) -> None:
        """A walk is over: what would be tried in vain now has had its turn."""
        for tenant in list(self._due):
            asks = self._asking.get(tenant, {}).items()
            goes_on = [asking.goes_on(self._freed, may_fit=may_fit(ask)) for ask, asking in asks]
            if not any(goes_on):
                del self._due[tenant]

    def _take_of(self, tenant: str, most: int, may_fit: MayFit) -> tuple[list[Need | Row], bool]:
        """So many of one tenant's at most, and whether it has more that are due."""
        found, left = list[Need | Row](), most
        asks = self._asking.get(tenant, {})
        for ask, asking in list(asks.items()):
            while asking.goes_on(self._freed, may_fit=may_fit(ask)):
                if left <= 0:
                    asks[ask] = asks.pop(ask)  # the others first, next time
                    return found, True
                _, number, item = asking.pop()
                if self._of.get(item) == number:
                    del self._of[item]
                    found.append(item)
                    left -= item.tries
            if not asking:
                del asks[ask]
        if not asks:
            self._asking.pop(tenant, None)
        return found, False


def _tries(items: Iterable[Need | Row]) -> int:
    """As how many tries these count."""
    return sum(item.tries for item in items)
