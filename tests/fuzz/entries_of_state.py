"""Files that an agent keeps for itself, in folders where a worker or a loss of power may have left anything else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fallow.services.executor.diaries import Diaries, DiaryUnreadable
from fallow.services.executor.files import DiskFiles
from fallow.services.executor.processes.folders.state_folder import StateFolder
from fallow.services.executor.processes.folders.worker_folder import WorkerEnd, WorkerFolder
from fallow.services.executor.processes.searches import Searches
from tests.fuzz.entries import Entry
from tests.fuzz.pace import NOT_COUNTED, Turns

NODE, MARK = "n1", "n1/a/1/0"
LINE = b'{"wall_ms":1,"cell_ms":1,"node":"n1","boot":"n.1","event":"started","job":"a","attempt":1,"devices":[0]}\n'
UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""What an agent expects of a worker's folder."""


def boot(folder: Path, value: bytes) -> Turns:
    """The boots of the node, of which one is begun behind the others."""
    (folder / "boot.json").write_bytes(value)
    kept = StateFolder(folder, NODE)
    try:
        yield NOT_COUNTED
        yield "none of this machine" if kept.boot() is None else "a boot"
        begun = kept.new_boot()
        yield "begun" if kept.has_begun(begun) else "forgotten"
    finally:
        kept.close()


def diary(folder: Path, value: bytes) -> Turns:
    """What the nodes have begun."""
    diaries = Diaries(DiskFiles(folder), "cell-a", 1)
    diaries.take(0, wall_ms=1)
    (folder / "diaries" / "cell-a-0-of-1.jsonl").write_bytes(value)
    yield NOT_COUNTED
    try:
        diaries.read(0, ())
        yield "read"
    except DiaryUnreadable as error:
        yield str(error).split(":", maxsplit=1)[0][:40]
    diaries.let_go(0)


def worker(folder: Path) -> WorkerFolder:
    """The folder of a worker none of whose processes is left."""
    return WorkerFolder(folder, MARK, None, Searches(MARK, list))


def order(folder: Path, value: bytes) -> Turns:
    """What a worker's supervisor was told."""
    (folder / "order.json").write_bytes(value)
    yield NOT_COUNTED
    try:
        yield "another's" if worker(folder).is_of_another(5) else "its own"
    except UNREADABLE as error:
        yield type(error).__name__


def stop(folder: Path, value: bytes) -> Turns:
    """When a worker shall be killed, as an agent before this one has said."""
    (folder / "stop").write_bytes(value)
    yield NOT_COUNTED
    worker(folder).stop(5)
    yield (folder / "stop").read_bytes()[:9].decode()


def end(folder: Path, value: bytes) -> Turns:
    """How a worker ended."""
    (folder / "exit").write_bytes(value)
    yield NOT_COUNTED
    try:
        ended = worker(folder).look()
        yield "lives" if ended is None else f"ended {ended.why[:9]}"
    except UNREADABLE as error:
        yield type(error).__name__


SEEDS: dict[str, tuple[Callable[[Path, bytes], Turns], bytes, str]] = {
    "boot": (
        boot,
        json.dumps({"machine": "m", "node": NODE, "boot": "m-1", "earlier": ["m-2", "m-3"]}).encode(),
        "begun",
    ),
    "diary": (diary, LINE * 2, "read"),
    "order": (
        order,
        json.dumps({"argv": ["true"], "env": {"A": "1"}, "mark": MARK, "ordered_ms": 5}).encode(),
        "its own",
    ),
    "stop": (stop, b"12345", "5"),
    "exit": (end, json.dumps(asdict(WorkerEnd(1, None, "", "out of memory"))).encode(), "ended "),
}


def state_entries(folder: Path) -> list[Entry]:
    """Each in a folder of its own."""
    entries = []
    for name, (work, seed, taken) in SEEDS.items():
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))

        def run(value: bytes, work: Callable[[Path, bytes], Turns] = work, place: Path = place) -> Turns:
            return work(place, value)

        entries.append(Entry(f"state/{name}", run, (seed,), taken, lines=name == "diary"))
    return entries
