"""How many workers the nodes of one region hold, and what it would cost to make room for more: arithmetic on whole
devices, before anything is tried.

It counts devices alone. What a node lacks beside them (processors, memory) it does not know: it may take a node for one
that holds a worker and does not, never the other way round. So where it says no there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from fallow.services.loaning.policy.preemption.allowance import OWN_COST, Allowance, SetCost, cost_alone
from fallow.services.loaning.policy.preemption.candidates import Candidate
from fallow.shared.cluster.quota.tree import Account

Step = tuple[SetCost, str, tuple[Candidate, ...]]
"""What it costs to make room for a worker more on a node, the node, and who would yield for that."""

Steps = list[tuple[SetCost, int, Step]]
"""The next step of each node, the cheapest first, and of equals that of the first node: a heap."""


class Slots:
    """The room of some nodes for workers of `gpus` whole devices. `free` are the devices that are free by now, `room`
    is how many workers they hold.
    """

    __slots__ = ("_chosen", "_free_at_rest", "_on", "free", "gpus", "order", "room")

    def __init__(self, free: dict[str, int], candidates: Iterable[Candidate], gpus: int) -> None:
        self.free, self._free_at_rest, self.gpus = dict(free), free, gpus
        self.room = sum(each // gpus for each in free.values())
        self.order = {node: number for number, node in enumerate(free)}
        self._on: dict[str, dict[tuple[Account, int], list[Candidate]]] = {}
        self._chosen: dict[str, Candidate] = {}
        for each in candidates:
            for node in each.gives:
                if node in self.free:
                    self._on.setdefault(node, {}).setdefault((each.leaf, each.milli), []).append(each)
        for of_tenants in self._on.values():
            for theirs in of_tenants.values():
                theirs.sort(key=cost_alone)

    def room_max(self) -> int:
        """How many they would hold without all candidates."""
        found = dict(self.free)
        for node, of_tenants in self._on.items():
            found[node] += sum(each.gives[node] for theirs in of_tenants.values() for each in theirs)
        return sum(free // self.gpus for free in found.values())

    def go(self, victim: Candidate) -> None:
        """This one yields."""
        self._chosen[victim.id] = victim
        self._change(victim, 1)

    def come_back(self, victim: Candidate) -> None:
        """This one does not yield after all."""
        del self._chosen[victim.id]
        self._change(victim, -1)

    def room_if_these_go(self, victims: Iterable[Candidate]) -> int:
        """How many workers they would hold if these had gone, and nobody else."""
        free = dict(self._free_at_rest)
        for victim in victims:
            for node, count in victim.gives.items():
                if node in free:
                    free[node] += count
        return sum(each // self.gpus for each in free.values())

    def _change(self, victim: Candidate, sign: int) -> None:
        free, gpus = self.free, self.gpus
        for node, count in victim.gives.items():
            if node in free:
                before = free[node]
                free[node] = before + sign * count
                self.room += free[node] // gpus - before // gpus

    def loses(self, victim: Candidate) -> int:
        """For how many workers less there would be room if this one stayed."""
        return sum(
            self.free[node] // self.gpus - (self.free[node] - count) // self.gpus
            for node, count in victim.gives.items()
            if node in self.free
        )

    def step(self, node: str, allowance: Allowance) -> Step | None:
        """The cheapest way to room for a worker more on this node; None where there is none."""
        lacks = self.gpus - self.free[node] % self.gpus
        lines = [
            [each for each in reversed(theirs) if each.id not in self._chosen] for theirs in self._on[node].values()
        ]
        taken: list[Candidate] = []
        while lacks > 0:
            firsts = [line for line in lines if _first_allowed(line, allowance)]
            if not firsts:
                break
            best = min(firsts, key=lambda line: allowance.cost_now(line[-1])).pop()
            allowance.take(best)
            taken.append(best)
            lacks -= best.gives[node]
        for each in taken:
            allowance.give_back(each)
        if lacks > 0:
            return None
        for each in reversed([*taken]):  # the dearest first
            if lacks + each.gives[node] <= 0:
                lacks += each.gives[node]
                taken.remove(each)
        return (allowance.cost_of_set(taken), node, tuple(taken))

    def choose(self, workers: int, allowance: Allowance) -> bool:
        """Let the cheapest yield, node by node, until there is room for so many workers. Whether there is."""
        steps = self.steps(allowance)
        while self.room < workers and self.go_on(steps, allowance):
            pass
        return self.room >= workers

    def steps(self, allowance: Allowance) -> Steps:
        """The first step of each node, as a heap."""
        found = [
            (step[0], self.order[node], step) for node in self._on if (step := self.step(node, allowance)) is not None
        ]
        heapify(found)
        return found

    def go_on(self, steps: Steps, allowance: Allowance) -> tuple[Candidate, ...]:
        """Let those of the cheapest step yield, and tell who they are; none where there is no step."""
        while steps:
            _, number, (cost, node, _) = heappop(steps)
            step = self.step(
                node, allowance
            )  # what was cheap may have become dear, and what was allowed may be no more
            if step is None:
                continue
            if step[0][:OWN_COST] > cost[:OWN_COST] and steps and step[0] > steps[0][0]:
                heappush(steps, (step[0], number, step))
                continue
            touched: dict[str, None] = {}
            for victim in step[2]:
                allowance.take(victim)
                self.go(victim)
                touched.update(dict.fromkeys(name for name in victim.gives if name in self.free))
            for name in touched:
                again = self.step(name, allowance)
                if again is not None:
                    heappush(steps, (again[0], self.order[name], again))
            return step[2]
        return ()

    def enter(self, node: str) -> None:
        """A worker stands there now."""
        self.free[node] -= self.gpus
        self.room -= 1

    @property
    def chosen(self) -> list[Candidate]:
        """Those that yield by now."""
        return [*self._chosen.values()]


def _first_allowed(line: list[Candidate], allowance: Allowance) -> bool:
    """Whether any of a tenant's may yield, the cheapest of which is the last then: those before it may not any more."""
    while line and not allowance.allows(line[-1]):
        line.pop()
    return bool(line)
