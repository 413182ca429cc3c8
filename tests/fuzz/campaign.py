"""A run of many inputs through the targets, from one seed. What is found is shrunk to the shortest input that shows it.

`python -m tests.fuzz.campaign --inputs 5000000` prints the counts, and exits with 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from fallow.shared.runtime.stack.choose import choose_redis
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import CORPUS, Target, all_targets
from tests.fuzz.view_functions import OnServer, view_target

HANG_S = 5
"""Of processor time: others may be at work on the machine."""

BATCH = 500
LEARNED_MAX = 400
FINDINGS_MAX = 5
SHRINK_TRIES_MAX = 3_000
SHRINK_S_MAX = 5


class Hangs(BaseException):
    """An input has taken longer than any should. No Exception, so that nothing on its way takes it for its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that brought about what must not be."""

    target: str
    seed: int
    error: str
    input: str


@dataclass(slots=True)
class Tally:
    """What a run did."""

    inputs: int = 0
    by_target: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.by_target.update(other.by_target)
        self.ends.update(other.ends)
        self.findings += other.findings


def attempt(run: Callable[[bytes], str], value: bytes) -> tuple[str, str | None]:
    """The word that the target gave, and the error if there was one."""
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        return run(value), None
    except (Exception, Hangs) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return "", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def shrink(run: Callable[[bytes], str], value: bytes, error: str) -> bytes:
    """The shortest input found that fails with an error of the same kind: pieces are cut out as long as it does."""
    kind, tries, size = error.split(":", maxsplit=1)[0], 0, max(1, len(value) // 2)
    end_s = time.monotonic() + SHRINK_S_MAX
    while size and tries < SHRINK_TRIES_MAX and time.monotonic() < end_s:
        at, is_shorter = 0, False
        while at < len(value) and tries < SHRINK_TRIES_MAX and time.monotonic() < end_s:
            tries += 1
            shorter = value[:at] + value[at + size :]
            found = attempt(run, shorter)[1]
            if found is not None and found.split(":")[0] == kind:
                value, is_shorter = shorter, True
            else:
                at += size
        size = size if is_shorter and size > 1 else size // 2
    return value


def campaign(targets: Sequence[Target], inputs: int, seed: int) -> Tally:
    """The kept corpus first, then so many inputs made from it, drawn from the seed."""
    tally, random = Tally(), Random(seed)
    mutators = {target.name: Mutator(target.seeds, lines=target.lines) for target in targets}
    known: dict[str, dict[str, None]] = {target.name: {} for target in targets}
    for target in targets:
        for value in target.seeds:
            _take(target, value, seed, tally, known[target.name])
    drawn = random.choices(targets, [each.share for each in targets], k=inputs // BATCH + 1) if targets else []
    while targets and tally.inputs < inputs and len(tally.findings) < FINDINGS_MAX:
        target = drawn[min(tally.inputs // BATCH, len(drawn) - 1)]
        mutator, ends = mutators[target.name], known[target.name]
        for _ in range(BATCH):
            value = mutator.draw(random)
            if _take(target, value, seed, tally, ends) and len(mutator.good) < LEARNED_MAX:
                mutator.learn(value)
    return tally


def _take(target: Target, value: bytes, seed: int, tally: Tally, ends: dict[str, None]) -> bool:
    """Run one input; whether its end is a new one."""
    word, error = attempt(target.run, value)
    tally.inputs += 1
    tally.by_target[target.name] += 1
    if error is not None:
        same = any(found.target == target.name and found.error[:24] == error[:24] for found in tally.findings)
        if not same:
            short = shrink(target.run, value, error)
            tally.findings.append(Finding(target.name, seed, error, repr(short[:2_000])))
        return False
    if word in ends:
        return False
    ends[word] = None
    tally.ends[target.name] += 1
    return True


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise Hangs(f"an input took more than {HANG_S} s")


def _process(inputs: int, vast: int, seed: int, names: tuple[str, ...], redis: str | None) -> Tally:
    from tests.fuzz.haste import all_entries, hasten  # noqa: PLC0415 - which is made of what stands here

    with tempfile.TemporaryDirectory(dir=_quick_folder()) as folder:
        targets = [*all_targets(Path(folder)), view_target("view-in-lua", None, share=25)]
        if redis is not None:
            targets.append(view_target("view-on-a-server", OnServer(redis), share=1))
        tally = campaign([target for target in targets if not names or target.name.startswith(names)], inputs, seed)
        entries = [entry for entry in all_entries(Path(folder)) if not names or entry.name.startswith(names)]
        tally.add(hasten(entries, vast, seed))
        return tally


def _quick_folder() -> str | None:
    """Where files cost no disk, if there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder.")
    parser.add_argument("--inputs", type=int, default=5_000_000)
    parser.add_argument("--vast", type=int, default=400, help="Large inputs for each way in, whose time counts.")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", action="append", default=[], help="Only targets whose name begins so.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    tally, begin_s = Tally(), time.monotonic()
    sys.stdout.write(f"seed {given.seed}, {given.processes} processes\n")
    share = -(-given.inputs // given.processes)
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(given.processes) as pool:
        server = choose_redis(Path(folder)).server
        server.start()
        # One process has the server, whose keys it need not share.
        redis = [server.address, *[None] * (given.processes - 1)]
        vast, names = -(-given.vast // given.processes), tuple(given.target)
        work = [(share, vast, given.seed + number, names, redis[number]) for number in range(given.processes)]
        try:
            for part in pool.starmap(_process, work):
                tally.add(part)
        finally:
            server.stop()
    body: dict[str, Any] = {
        "inputs": tally.inputs,
        "kept": sum(1 for path in CORPUS.rglob("*") if path.is_file()),
        "ends": sum(tally.ends.values()),
        "findings": [asdict(finding) for finding in tally.findings],
        "seed": given.seed,
        "seconds": round(time.monotonic() - begin_s, 1),
        "by_target": dict(sorted(tally.by_target.items())),
    }
    for finding in tally.findings:
        sys.stdout.write(f"FINDING in {finding.target}, seed {finding.seed}: {finding.error}\n  {finding.input}\n")
    sys.stdout.write(f"{tally.inputs} inputs, {body['ends']} different ends, {len(tally.findings)} findings\n")
    if given.json:
        sys.stdout.write(json.dumps(body) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
