"""I7 and I8: what the view showed, against the books of the same version; and no reader is shown an older one again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.shared.view.rows import JobRow, NodeRow, Place
from fallow.simulator.history.books import Books, JobPage, NodePage
from fallow.simulator.history.evidence import CellEvidence, Reading, View, Violation
from fallow.simulator.history.rules.queues.places_in_queues import places_in_queues


def readings_go_forward(cell: str, readings: Sequence[Reading]) -> list[Violation]:
    """I8: no client that says what it has seen is shown less."""
    seen: dict[str, int] = {}
    found = []
    for reading in readings:
        if reading.at_least is not None and reading.version < max(reading.at_least, seen.get(reading.client, 0)):
            text = f"client {reading.client} was shown version {reading.version} after {seen.get(reading.client, 0)}"
            found.append(Violation("I8", f"{text}, it had asked for {reading.at_least} at least", cell))
        if reading.at_least is not None:
            seen[reading.client] = max(reading.version, seen.get(reading.client, 0))
    return found


class Showings:
    """Everything that was shown of a cell, to be compared as the books reach its version."""

    def __init__(self, evidence: CellEvidence) -> None:
        self._cell = evidence.cell
        self._by_version: dict[int, list[Reading | View]] = {}
        everything: list[Reading | View] = [*evidence.readings, *evidence.views]
        for shown in everything:
            self._by_version.setdefault(shown.version, []).append(shown)

    def compare(self, books: Books) -> list[Violation]:
        """What was shown as of this version and is not so."""
        where = f"{self._cell}, version {books.version}"
        return [
            Violation("I7", text, where)
            for shown in self._by_version.pop(books.version, ())
            for text in (_of_reading(shown, books) if isinstance(shown, Reading) else _of_view(shown, books))
        ]

    def of_no_version(self) -> list[Violation]:
        """What was shown as of a version that the log never had."""
        return [
            Violation("I7", f"version {version} was shown, the log has none such", self._cell)
            for version in sorted(self._by_version)
        ]


def _of_reading(reading: Reading, books: Books) -> Iterable[str]:
    for job, shown in reading.jobs.items():
        page, over = books.jobs.get(job), books.over.get(job)
        # A job that is over is shown without the attempts that it took.
        is_so = shown is None
        given = "nothing"
        if page is not None:
            is_so, given = shown == (page.status, page.attempt), f"{page.status} {page.attempt}"
        elif over is not None and (shown is not None or books.is_remembered(over)):
            is_so, given = shown is not None and shown[0] == over.status, over.status
        if not is_so:
            yield f"client {reading.client} was shown job {job} as {shown}, the log gives {given}"


def _of_view(view: View, books: Books) -> Iterable[str]:
    positions = places_in_queues(books)
    for job, page in books.jobs.items():
        row = view.jobs.get(job)
        if row is None:
            yield f"job {job} is not in the view"
        else:
            yield from _differences(f"job {job}", row, _of_page(page, positions.get(job)))
    for job, over in books.over.items():
        row = view.jobs.get(job)
        if row is not None and (row.status, row.tenant, row.over_ms) != (over.status, over.tenant, over.over_ms):
            yield f"job {job} is shown as {row.status}, it was {over.status}"
        elif row is None and books.is_remembered(over):
            yield f"job {job}, which is over, is not in the view"
    yield from (
        f"job {job} is in the view alone" for job in view.jobs if job not in books.jobs and job not in books.over
    )
    yield from _of_nodes(view, books)
    if view.used is not None:
        for tenant, gpu_type in sorted({**view.used, **books.quotas}):
            shown, used = view.used.get((tenant, gpu_type), 0), books.used_below(tenant, gpu_type)
            if shown != used:
                yield f"{tenant} is shown with {shown} milli-GPUs of {gpu_type}, it uses {used}"


def _of_nodes(view: View, books: Books) -> Iterable[str]:
    for node, page in books.nodes.items():
        row = view.nodes.get(node)
        if row is None:
            yield f"node {node} is not in the view"
        else:
            yield from _differences(f"node {node}", row, _of_node_page(page))
    yield from (f"node {node} is in the view alone" for node in view.nodes if node not in books.nodes)


def _differences(what: str, row: JobRow | NodeRow, given: dict[str, object]) -> Iterable[str]:
    for name, value in given.items():
        shown = getattr(row, name)
        if shown != value:
            yield f"{what} is shown with {name} {shown}, the log gives {value}"


def _of_page(page: JobPage, position: int | None) -> dict[str, object]:
    spec = page.spec
    return {
        "tenant": spec.tenant,
        "status": page.status,
        "queue": spec.queue or "",
        "priority": spec.priority,
        "gpus_milli": spec.workers * spec.resources.gpu_milli,
        "workers": spec.workers,
        "attempt": page.attempt,
        "deferred": _waits_for(page),
        "submit_ms": page.submit_ms,
        "not_before_ms": page.not_before_ms,
        "first_start_ms": page.first_start_ms,
        "started_ms": page.started_ms,
        "preemptions": page.preemptions,
        "failures": page.failures,
        "places": tuple(Place(place.rank, place.node, place.devices, place.gpu_milli) for place in page.places),
        "position": position,
        "planned_start_ms": None if page.plan is None else page.plan.start_ms,
    }


def _waits_for(page: JobPage) -> str | None:
    """A job that is held or awaits others is told so: what was said of it before holds no more."""
    return {"held": "held", "awaiting": "after"}.get(page.status, page.deferred)


def _of_node_page(page: NodePage) -> dict[str, object]:
    return {
        "pool": page.pool,
        "status": page.status,
        "gpus": page.spec.gpus,
        "gpus_failed": tuple(sorted(page.failed)),
        "allocated_milli": sum(page.held.values()),
        "cpu_used_milli": page.cpu_milli,
        "memory_used_mib": page.memory_mib,
        "jobs": tuple(sorted(page.workers.items())),
        "loan": page.loan,
    }
