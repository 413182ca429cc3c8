"""The disk that the executors share: the nodes' diaries, and the reigns that say who may write them. It outlives every
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.executor.policy.desired import RunKey
from services.executor.policy.past import key_of
from services.executor.service import slot_of
from services.simulator.history.record import EPOCH_MS, DiaryEntry, NodeMoment
from shared.cluster.diary import DiaryLine
from shared.events.values import GPU

if TYPE_CHECKING:
    from services.simulator.world import World

SEQ_PER_MS = 1_000
SEQ_PER_REIGN = 1_000_000_000


class Disk:
    """All diaries, as lines in the order in which they were written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.diaries: dict[str, list[DiaryEntry]] = {}
        self._reigns: dict[tuple[str, int], int] = {}
        self._dead: dict[str, None] = {}
        self._on_device: dict[tuple[str, int], dict[RunKey, int]] = {}

    def take(self, cell: str, slot: int) -> int:
        """Take a slot's reign. A number above all sequence numbers before."""
        before = self._reigns.get((cell, slot), 0)
        wall_ms = EPOCH_MS + self._world.engine.now_ms
        self._reigns[cell, slot] = seq = max(before + SEQ_PER_REIGN, wall_ms * SEQ_PER_MS)
        return seq

    def lost(self, cell: str, own: dict[int, int]) -> list[int]:
        """Those of these slots whose reign is somebody else's by now."""
        return [slot for slot, seq in own.items() if self._reigns.get((cell, slot)) != seq]

    def read(self, node: str) -> list[DiaryLine]:
        """One node's diary."""
        return [entry.line for entry in self.diaries.get(node, ())]

    def write(self, process: str, cell: str, slots: int, own: dict[int, int], lines: Sequence[DiaryLine]) -> list[int]:
        """Append these lines. The slots whose reign is somebody else's: nothing is written for these."""
        fenced: dict[int, None] = {}
        for line in lines:
            slot = slot_of(line.node, slots)
            if self._reigns.get((cell, slot)) != own.get(slot):
                fenced[slot] = None
            else:
                self._append(process, line)
        return list(fenced)

    def _append(self, process: str, line: DiaryLine) -> None:
        now_ms = self._world.engine.now_ms
        self.diaries.setdefault(line.node, []).append(DiaryEntry(now_ms, process, line))
        # What is written of a machine that is gone happens nowhere, until it has booted again.
        is_true = line.node not in self._dead and line.node not in self._world.machines
        what = None if not is_true else {"started": "began", "ended": "ended"}.get(line.event)
        if what == "began":
            self._hold(line)
        elif what == "ended":
            self._let_go(line)
        if what is not None:
            moment = NodeMoment(
                now_ms,
                line.node,
                "began" if what == "began" else "ended",
                line.job,
                line.attempt,
                line.devices,
                line.gpu_milli,
                line.rank,
                line.turn,
            )
            self._world.history.moments.append(moment)

    def die(self, node: str) -> None:
        """The machine is gone, with everything that ran on it. Its diary is not, and who writes it may not know."""
        self._dead[node] = None
        self._world.history.moments.append(NodeMoment(self._world.engine.now_ms, node, "died"))
        for at in [at for at in self._on_device if at[0] == node]:
            del self._on_device[at]

    def boot(self, node: str) -> None:
        """The machine has begun a new boot."""
        self._dead.pop(node, None)

    def _hold(self, line: DiaryLine) -> None:
        """I1 on the node: no device holds more than a device."""
        run = key_of(line)
        for device in line.devices:
            held = self._on_device.setdefault((line.node, device), {})
            held[run] = line.gpu_milli
            if sum(held.values()) > GPU:
                self._world.violated("I1", f"device {device} of {line.node} runs {[*held]} at one time")

    def _let_go(self, line: DiaryLine) -> None:
        for device in line.devices:
            self._on_device.get((line.node, device), {}).pop(key_of(line), None)
