"""I6: each decision takes effect exactly once on a node. Judged from the nodes' own diaries.

A diary is what one node wrote down, in its order: which run it started, adopted after a restart of its agent, and
ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from shared.cluster.invariants import Offence
from shared.events.base import Attempt, Count, JobId, Millis, NodeId, Value
from shared.events.decisions import Decision
from shared.events.effects import JobRunning, JobStarted
from shared.events.values import RunStatus


class DiaryLine(Value):
    """One line of a node's diary. `status` says how a run ended; `cell_ms` and `wall_ms` when."""

    node: NodeId
    job: JobId
    attempt: Attempt
    event: Literal["started", "adopted", "ended"]
    devices: tuple[Count, ...] = ()
    gpu_milli: Count = 0
    status: RunStatus | None = None
    cell_ms: Millis
    wall_ms: Millis


RunKey = tuple[str, str, int]
"""(node, job, attempt)."""


@dataclass(slots=True)
class Orders:
    """What the log told the nodes to do. Feed it every accepted decision, from the beginning of the log."""

    started: dict[RunKey, tuple[int, ...]] = field(default_factory=dict)
    running: dict[tuple[str, int], None] = field(default_factory=dict)

    def take(self, decision: Decision) -> None:
        """Note the starts and the confirmed starts of one decision."""
        for effect in decision.effects:
            if isinstance(effect, JobStarted):
                for place in effect.workers:
                    key = (place.node, effect.job, effect.attempt)
                    self.started[key] = tuple(sorted(self.started.get(key, ()) + place.devices))
            elif isinstance(effect, JobRunning):
                self.running[effect.job, effect.attempt] = None


def check_diaries(orders: Orders, lines: Iterable[DiaryLine]) -> list[Offence]:
    """Every offence of the diaries against the orders: unordered or repeated starts, ends without a start, confirmed
    runs that no node began, and two runs on one device at one time. Lines of one node stand in the order in which it
    wrote them.
    """
    found: list[Offence] = []
    begun: dict[RunKey, tuple[int, ...]] = {}
    ended: dict[RunKey, None] = {}
    on_device: dict[tuple[str, int], dict[RunKey, int]] = {}
    for line in lines:
        key = (line.node, line.job, line.attempt)
        if line.event == "started":
            found.extend(_start_offences(orders, begun, key, line))
            begun[key] = line.devices
            found.extend(_occupy(on_device, key, line))
        elif line.event == "ended":
            if key not in begun or key in ended:
                found.append(Offence("I6", f"{_run(key)} ended {'twice' if key in ended else 'without a start'}"))
            ended[key] = None
            for device in begun.get(key, ()):
                on_device[line.node, device].pop(key, None)
    for key in orders.started:
        if (key[1], key[2]) in orders.running and key not in begun:
            found.append(Offence("I6", f"{_run(key)} was confirmed and its node never began it"))
    return found


def _run(key: RunKey) -> str:
    return f"attempt {key[2]} of job {key[1]} on node {key[0]}"


def _start_offences(
    orders: Orders, begun: dict[RunKey, tuple[int, ...]], key: RunKey, line: DiaryLine
) -> list[Offence]:
    if key in begun:
        return [Offence("I6", f"{_run(key)} was begun twice")]
    if key not in orders.started:
        return [Offence("I6", f"{_run(key)} was begun and never ordered")]
    if tuple(sorted(set(line.devices))) != tuple(sorted(set(orders.started[key]))):
        return [Offence("I6", f"{_run(key)} was begun on devices {line.devices}, ordered on {orders.started[key]}")]
    return []


def _occupy(on_device: dict[tuple[str, int], dict[RunKey, int]], key: RunKey, line: DiaryLine) -> list[Offence]:
    found = []
    for device in line.devices:
        runs = on_device.setdefault((line.node, device), {})
        share = line.gpu_milli or 1000
        if sum(runs.values()) + share > 1000:
            found.append(
                Offence("I1", f"device {device} of {line.node} runs {_run(key)} beside {', '.join(map(_run, runs))}")
            )
        runs[key] = share
    return found
