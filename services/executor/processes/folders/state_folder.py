"""What of a node outlives its agent: its boot, and that only one agent at a time looks after it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path

from fallow.services.executor.processes.machine import machine_boot
from fallow.services.executor.processes.supervisor import read_whole, write_whole
from fallow.shared.kept_folders import AGENT
from fallow.shared.runtime.files.folder_format import FolderOfAnotherFormat, take_folder

BOOTS_KEPT = 16
"""An agent that began more of them without a word of any reaching the cell waits until the cell has lost the node."""


class StateFolderInUse(Exception):
    """Another agent looks after this folder."""


class StateFolderUnusable(Exception):
    """The folder cannot be made, or nothing can be written there."""


def make_folder(path: Path) -> None:
    """Let a folder stand there, in the state folder. Raises StateFolderUnusable where something else has its name."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_else = isinstance(error, FileExistsError | NotADirectoryError)
        why = "is no folder: move it away, and start again" if is_else else f"cannot be made: {error.strerror}"
        raise StateFolderUnusable(f"state_dir = {path.parent}: {path} {why}") from error


class StateFolder:
    """The state folder of one node, held for as long as this object lives. Raises StateFolderInUse,
    StateFolderUnusable, FolderOfAnotherFormat.
    """

    def __init__(self, path: Path, node: str) -> None:
        try:
            # Orders hold the environment of jobs: no other user may read it.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path, self._node = path.resolve(), node
            self._lock = os.open(path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateFolderUnusable(f"state_dir = {path}: cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise StateFolderInUse(f"state_dir = {path}: another agent is at work there") from error
        try:
            take_folder("state_dir", path, AGENT)
        except FolderOfAnotherFormat:
            self.close()
            raise

    def boot(self) -> str | None:
        """The node's boot, if it has begun since the machine's kernel did."""
        machine, boots = self._begun()
        return boots[0] if boots and machine == machine_boot() else None

    def has_begun(self, boot: str) -> bool:
        """Whether the node began this boot with this folder; known of the last ones."""
        return boot in self._begun()[1]

    def new_boot(self) -> str:
        """Begin a new boot. Its name tells of the machine's, and is never the same again."""
        machine = machine_boot()
        boot, earlier = f"{machine[:8]}-{secrets.token_hex(4)}", self._begun()[1][: BOOTS_KEPT - 1]
        known = {"machine": machine, "node": self._node, "boot": boot, "earlier": earlier}
        write_whole(self.path / "boot.json", json.dumps(known))
        return boot

    def _begun(self) -> tuple[str, list[str]]:
        """In which boot of the machine the node's last one began, and its boots, the newest first."""
        try:
            known = json.loads(read_whole(self.path / "boot.json") or "{}")
            is_ours = known["node"] == self._node
            boots = [str(known["boot"]), *map(str, known.get("earlier", ()))]
            return (str(known["machine"]), boots) if is_ours else ("", [])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "", []  # there is none, or no agent wrote it

    def close(self) -> None:
        """Let another agent have it."""
        os.close(self._lock)
