"""The membership of a simulated process in its group."""

from __future__ import annotations

import asyncio

from fallow.simulator.process import Process


class WorldMember:
    """What the process believes to own. `own` is called when the group's word arrives."""

    def __init__(self, process: Process, group: str) -> None:
        assert group == process.group, f"{process.name} is of the group {process.group}, not of {group}"
        self._process, self._owned = process, frozenset[int]()
        self._change = asyncio.Event()

    async def start(self) -> None:
        """Ask for a share, which comes a little later."""
        self._process.world.groups.joined(self._process)

    async def stop(self) -> None:
        """Leave, unless it is death itself that closes the process."""
        if self._process.is_member:
            self._process.world.groups.leaves(self._process)
        self._owned = frozenset()

    def owned(self) -> frozenset[int]:
        """As the process was told last."""
        return self._owned

    def decline(self, partitions: frozenset[int]) -> None:
        """As the port says."""
        if self._process.is_member:
            self._process.world.groups.declines(self._process, partitions)

    async def changed(self) -> frozenset[int]:
        """As the port says."""
        await self._change.wait()
        self._change.clear()
        return self._owned

    def own(self, partitions: frozenset[int]) -> None:
        """The group's newest word."""
        if partitions != self._owned:
            self._owned = partitions
            self._change.set()
