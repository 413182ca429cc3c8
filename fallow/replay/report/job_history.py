"""What became of each job, as one row: made from the topics, written to jobs.csv, and read back from it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fallow.shared.events.fields.values import GPU, WorkerPlace

COLUMNS = (
    "id",
    "tenant",
    "kind",
    "carried",
    "gpus",
    "submit_ms",
    "starts_ms",
    "ends_ms",
    "nodes",
    "devices",
    "preemptions",
    "final_state",
)
STATES = ("finished", "failed", "cancelled", "rejected", "waiting", "running", "lost")


@dataclass(frozen=True, slots=True)
class Hold:
    """One node's part of an attempt: the devices, and the milli-GPUs that are held on each. Workers that enter later
    hold them from `start_ms`, workers that leave earlier until `end_ms`; None: as long as the attempt.
    """

    node: str
    devices: tuple[int, ...]
    milli_each: int = GPU
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(slots=True)
class Stretch:
    """One attempt: from its start until its devices were free again (None: they are not)."""

    start_ms: int
    holds: tuple[Hold, ...]
    end_ms: int | None = None

    @property
    def milli(self) -> int:
        """The milli-GPUs that it holds."""
        return sum(len(hold.devices) * hold.milli_each for hold in self.holds)

    def enter(self, workers: Iterable[WorkerPlace], at_ms: int) -> None:
        """Further workers hold their places from now on."""
        self.holds = (*self.holds, *(replace(hold, start_ms=at_ms) for hold in holds_of(workers)))

    def leave(self, place: WorkerPlace, at_ms: int) -> None:
        """A worker has held its place until now."""
        (left,) = holds_of((place,))
        for number, hold in enumerate(self.holds):
            if hold.end_ms is None and _is_part(left, hold):
                rest = replace(hold, devices=_without(hold.devices, left.devices))
                parts = (rest,) if rest.devices else ()
                gone = replace(hold, devices=left.devices, end_ms=at_ms)
                self.holds = (*self.holds[:number], *parts, gone, *self.holds[number + 1 :])
                return


@dataclass(slots=True)
class JobRow:
    """One submitted job. Times count in milliseconds from the beginning of the run's day or trace."""

    id: str
    tenant: str = ""
    kind: str = ""
    is_carried: bool = False
    gpus_milli: int = 0
    submit_ms: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    preemptions: int = 0
    final_state: str = "lost"

    @property
    def wait_ms(self) -> int | None:
        """From the submission to the first start; None for a job that never started."""
        return self.stretches[0].start_ms - self.submit_ms if self.stretches else None


def holds_of(workers: Iterable[WorkerPlace]) -> tuple[Hold, ...]:
    """The workers' places, joined by node, in the order of the workers."""
    by_node: dict[tuple[str, int], list[int]] = {}
    for place in workers:
        share = place.gpu_milli // max(1, len(place.devices))
        by_node.setdefault((place.node, share), []).extend(place.devices)
    return tuple(Hold(node, tuple(sorted(devices)), share) for (node, share), devices in by_node.items())


def _is_part(part: Hold, hold: Hold) -> bool:
    if (part.node, part.milli_each) != (hold.node, hold.milli_each):
        return False
    return all(part.devices.count(device) <= hold.devices.count(device) for device in part.devices)


def _without(devices: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    """Several shares of one device stand there several times: one of them goes for each."""
    left = list(devices)
    for device in gone:
        left.remove(device)
    return tuple(left)


def write_rows(path: Path, rows: Iterable[JobRow]) -> None:
    """jobs.csv. Attempts are parted by `;`, the nodes of an attempt by spaces, the devices of a node by `+`; an
    attempt that holds its devices still has no end. Devices that were held for a part of the attempt are followed by
    `[from-to]`, of which what is left out is the attempt's.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(_cells(row))


def read_rows(path: Path) -> Iterator[JobRow]:
    """The rows of a jobs.csv."""
    with path.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            yield _row(cells)


def _cells(row: JobRow) -> tuple[str | int, ...]:
    return (
        row.id,
        row.tenant,
        row.kind,
        "yes" if row.is_carried else "no",
        _gpus(row.gpus_milli),
        row.submit_ms,
        ";".join(str(stretch.start_ms) for stretch in row.stretches),
        ";".join("" if stretch.end_ms is None else str(stretch.end_ms) for stretch in row.stretches),
        ";".join(" ".join(hold.node for hold in stretch.holds) for stretch in row.stretches),
        ";".join(" ".join(_devices(hold) for hold in stretch.holds) for stretch in row.stretches),
        row.preemptions,
        row.final_state,
    )


def _devices(hold: Hold) -> str:
    share = "" if hold.milli_each == GPU else f"@{hold.milli_each}"
    times = ["" if at_ms is None else str(at_ms) for at_ms in (hold.start_ms, hold.end_ms)]
    return "+".join(map(str, hold.devices)) + share + (f"[{'-'.join(times)}]" if any(times) else "")


def _gpus(milli: int) -> str:
    whole, part = divmod(milli, GPU)
    return f"{whole}.{part:03d}".rstrip("0").rstrip(".") if part else str(whole)


def _row(cells: dict[str, str]) -> JobRow:
    whole, _, part = cells["gpus"].partition(".")
    return JobRow(
        id=cells["id"],
        tenant=cells["tenant"],
        kind=cells["kind"],
        is_carried=cells["carried"] == "yes",
        gpus_milli=int(whole) * GPU + int(part.ljust(3, "0") if part else "0"),
        submit_ms=int(cells["submit_ms"]),
        stretches=list(_stretches(cells)) if cells["starts_ms"] else [],
        preemptions=int(cells["preemptions"]),
        final_state=cells["final_state"],
    )


def _stretches(cells: dict[str, str]) -> Iterator[Stretch]:
    columns = (cells[name].split(";") for name in ("starts_ms", "ends_ms", "nodes", "devices"))
    for start, end, nodes, devices in zip(*columns, strict=True):
        holds = tuple(_hold(node, held) for node, held in zip(nodes.split(" "), devices.split(" "), strict=True))
        yield Stretch(int(start), holds, int(end) if end else None)


def _hold(node: str, text: str) -> Hold:
    held, _, times = text.removesuffix("]").partition("[")
    start, _, end = times.partition("-")
    devices, _, share = held.partition("@")
    return Hold(
        node,
        tuple(int(device) for device in devices.split("+") if device),
        int(share) if share else GPU,
        int(start) if start else None,
        int(end) if end else None,
    )
