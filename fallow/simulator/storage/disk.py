"""The disks of the world: files that outlive every process, and what truly happened by what the nodes' diaries say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from fallow.services.executor.policy.desired import RunKey
from fallow.services.executor.policy.journal_recovery import key_of
from fallow.services.executor.service import slot_of
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.fields.values import GPU
from fallow.simulator.history.record import DiaryEntry, NodeMoment, TakenOver

if TYPE_CHECKING:
    from fallow.simulator.world import World

_READ = msgspec.json.Decoder(DiaryLine).decode


@dataclass(slots=True)
class Stored:
    """One file. What stands behind its certain bytes goes with the power of its machine."""

    text: bytearray = field(default_factory=bytearray)
    certain_bytes: int = 0


Folder = dict[str, Stored]
"""The files of one disk, by their names."""


class Disk:
    """The disk that the executors share, and every line that a node ever wrote down, on whichever disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.folder: Folder = {}
        self.diaries: dict[str, list[DiaryEntry]] = {}
        self._dead: dict[str, None] = {}
        self._booted: dict[tuple[str, str], None] = {}
        self._on_device: dict[tuple[str, int], dict[RunKey, int]] = {}

    def wrote(self, process: str, text: bytes) -> None:
        """These lines stand in a diary now."""
        for entry in text.splitlines(keepends=True):
            if entry.endswith(b"\n"):  # what was torn says nothing
                self._take(process, _READ(entry))

    def _take(self, process: str, line: DiaryLine) -> None:
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

    def forgot(self, node: str, text: bytes) -> None:
        """This end of a node's diary is gone with the power of its machine: the node knows none of its lines."""
        entries, count = self.diaries.get(node, []), text.count(b"\n")
        known = [number for number, entry in enumerate(entries) if not entry.is_gone]
        for number in known[len(known) - count :]:
            entries[number] = replace(entries[number], is_gone=True)

    def took_reign(self, claim: str) -> None:
        """A slot of this disk has another reign: what runs on its nodes stands still until it is taken up."""
        named, _, slots = claim.removeprefix("reigns/").rpartition("-of-")
        cell, _, slot = named.rpartition("-")
        now_ms, nodes = self._world.engine.now_ms, [spec.id for spec in self._world.nodes[cell]]
        self._world.history.taken += [
            TakenOver(now_ms, node) for node in nodes if slot_of(node, int(slots)) == int(slot)
        ]

    def die(self, node: str) -> None:
        """The machine is gone, with everything that ran on it. Its diary is not, and its writer may not know."""
        self._dead[node] = None
        self._world.history.moments.append(NodeMoment(self._world.engine.now_ms, node, "died"))
        for at in [at for at in self._on_device if at[0] == node]:
            del self._on_device[at]

    def joined(self, node: str, boot: str) -> None:
        """The machine says that it has begun this boot. Only the first time it tells something new."""
        if (node, boot) not in self._booted:
            self._booted[node, boot] = None
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
