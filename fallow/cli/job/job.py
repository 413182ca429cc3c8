"""`fallow job`: the story of one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_job
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.errors.suggestions import LISTS
from fallow.cli.job.jobs import job_object
from fallow.cli.job.meant import hint_for
from fallow.cli.job.named import TenantName, one_in_full
from fallow.cli.job.story import array as job_array
from fallow.cli.job.story import reason as job_reason
from fallow.cli.job.story.standing import elements
from fallow.cli.job.story.stays import Stay, stays_of
from fallow.cli.log.newest import newest_state
from fallow.cli.log.sentences import devices, rejection, sentence
from fallow.cli.log.why import rejections
from fallow.cli.node.silence import silence_lines
from fallow.cli.output.durations import moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence, print_table
from fallow.services.placement.explain.explain import WhyNot
from fallow.shared.client.port import ClientUnavailable, News
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.events.effects import (
    Effect,
    JobCancelled,
    JobDeferred,
    JobEnqueued,
    JobFailed,
    JobFinished,
    JobHeld,
    JobReady,
    JobRefused,
    JobReleased,
    JobRequeued,
    JobStarted,
)
from fallow.shared.events.fields.job_ids import as_file_name, own_id, parted
from fallow.shared.events.fields.value import plain
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import FailReason, RefuseCode
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.view.rows import JobRow

PLACE_COLUMNS = (">ATTEMPT", ">RANK", "NODE", "DEVICES", "STATE")

WAITS = (JobEnqueued, JobRequeued, JobDeferred, JobHeld, JobReleased, JobReady)
GOES_ON = (JobStarted, JobFinished, JobFailed, JobCancelled)


@dataclass(slots=True)
class Told:
    """What there is to tell of a job; `row` is None where the view does not know it or is away."""

    cell: str
    news: list[News] = field(default_factory=list)
    row: JobRow | None = None
    reason: tuple[WhyNot, JobSpec] | None = None
    elements: tuple[JobRow, ...] = ()
    away: list[str] = field(default_factory=list)
    rejected: list[tuple[int, JobRejected]] = field(default_factory=list)


def job(
    context: typer.Context,
    job_id: Annotated[
        str, typer.Argument(metavar="ID", callback=a_job, help="The job's id, or TENANT/ID.", show_default=False)
    ],
    tenant: TenantName = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Tell the story of one job from the decision log, where each of its attempts ran, and why it waits if it does;
    of an array, how far its elements are.
    """
    access = access_of(context)
    cell = None if cell is None else access.cell(cell)
    named = run(one_in_full(access, job_id, tenant, cell))
    job_id = named.job
    told = run(_story(access, job_id, named.cell))
    if told is None:
        hint = "; `fallow jobs` lists jobs" if job_id in LISTS else run(hint_for(access, job_id, cell))
        who = "no cell knows a" if cell is None else f"cell {cell} knows no"
        end_with(Exit.NO, f"fallow: {who} job {job_id}, and the log does not tell of it{hint}")
    if as_json:
        print_json(as_object(job_id, told))
    else:
        _tell(job_id, told)
    if never_was(told):
        hint = run(hint_for(access, job_id, cell))
        end_with(Exit.NO, f"fallow: there never was a job {job_id}: the log holds only refused requests for it{hint}")


def never_was(told: Told) -> bool:
    """Whether all that is told are answers to requests about an id that the cell did not know."""
    refused = [news.event for news in told.news if isinstance(news.event, JobRefused)]
    is_all = bool(refused) and len(refused) == len(told.news) and told.row is None and not told.elements
    return is_all and all(event.code is RefuseCode.UNKNOWN_JOB for event in refused)


async def _story(access: Access, job_id: str, cell: str | None) -> Told | None:
    names = [part.name for part in access.cells().cells] if cell is None else [access.cell(cell)]
    async with access.client() as client:
        for name in names:
            told = Told(name)
            async with aclosing(client.story(name, job_id)) as found:
                told.news = [news async for news in found]
            try:
                told.row = (await client.job(name, job_id)).value
                told.elements = (await elements(client, name, job_id)).value
            except ClientUnavailable:
                # The log tells the story without Redis; the row only adds the present.
                told.row = None
            if told.news or told.row is not None or told.elements:
                break
        else:
            return await _rejected(access, names, job_id)
    if _waits(told):
        state = await newest_state(access, told.cell)
        told.reason = job_reason.reason_in(state, job_id, access.cells().cell(told.cell).queues)
        told.away = [] if told.reason is None else list(silence_lines(state, told.reason[0].away))
    elif told.row is not None and told.row.places:
        state = await newest_state(access, told.cell)
        held = dict.fromkeys(place.node for place in told.row.places)
        told.away = list(silence_lines(state, [state.nodes[node] for node in held if node in state.nodes]))
    return told


async def _rejected(access: Access, names: Sequence[str], job_id: str) -> Told | None:
    """A job that admission turned away: no decision and no row is about it."""
    log, layout = KafkaLog(access.kafka_access, "fallow-cli"), access.layout()
    await log.start()
    try:
        for name in names:
            if said := await rejections(log, layout, name, job_id):
                return Told(name, rejected=said)
    finally:
        await log.stop()
    return None


def _waits(told: Told) -> bool:
    """Whether it may be worth while to read the cell's state: the newest word says that it waits."""
    says = [type(news.event) for news in told.news if isinstance(news.event, WAITS + GOES_ON)]
    if says:
        return says[-1] in WAITS
    return told.row is not None and told.row.status in WAITING


def _tell(job_id: str, told: Told) -> None:
    status = f": {told.row.status}" if told.row is not None else ": rejected" if told.rejected else ""
    if told.elements:
        job_array.tell(job_id, told.cell, told.elements)
        return
    print_sentence(f"job {job_id} of cell {told.cell}{status}")
    for at_ms, event in told.rejected:
        print_sentence(f"  {moment(at_ms)}  {rejection(event)}")
    for news in told.news:
        assert isinstance(news.event, Effect), "the log of decisions tells of effects alone"
        print_sentence(f"  {moment(news.at_ms or 0)}  v{news.version}  {sentence(news.event, news.at_ms)}")
    if told.reason is not None:
        for line in job_reason.lines(*told.reason, told.away):
            print_sentence(line)
    else:
        for line in told.away:
            print_sentence(f"  {line}")
    if told.row is not None and told.row.places and _comes_singly(told):
        print_sentence(f"workers: {len(told.row.places)} held, {told.row.workers} wanted")
    for line in hints(job_id, told.news):
        print_sentence(f"  {line}")
    rows = [
        (stay.attempt, stay.place.rank, stay.place.node, devices(stay.place.devices), stay.state)
        for stay in _stays(told)
    ]
    if rows:
        print_table("where it ran", PLACE_COLUMNS, rows)


def hints(job_id: str, story: Sequence[News]) -> Iterator[str]:
    """What helps beside the story: that a job which failed asked for no retry, or that its nodes are to be mended, and
    where its output is.
    """
    events = [news.event for news in story]
    spec = next((event.spec for event in events if isinstance(event, JobEnqueued)), None)
    if spec is None:
        return
    ends = [event.reason for event in events if isinstance(event, JobFailed)]
    if FailReason.NODE_FAULTS in ends:
        yield "no `retry` helps against its nodes' own faults: mend the nodes where it ran last, then submit it anew"
    if FailReason.RETRIES_EXHAUSTED in ends and not spec.retry.budget:
        yield "no retry was asked for: with `retry: {budget: 3}` a job is tried again three times"
    if isinstance(spec.run, ProcessRun) and any(isinstance(event, JobStarted) for event in events):
        yield f"output, on each node: STATE_DIR/runs/{as_file_name(job_id)}/ATTEMPT/RANK/stdout and stderr"
        yield "STATE_DIR is that of the agent (--state-dir; out/agents/NODE if none is given)"


def _stays(told: Told) -> list[Stay]:
    return stays_of(news.event for news in told.news if isinstance(news.event, Effect))


def _comes_singly(told: Told) -> bool:
    """Whether the job is no gang: then it may hold less than it wants."""
    return any(isinstance(news.event, JobEnqueued) and not news.event.spec.gang for news in told.news)


def as_object(job_id: str, told: Told) -> dict[str, Any]:
    """The story for programs."""
    return {
        "job": job_id,
        "id": own_id(job_id),
        "tenant": parted(job_id)[0] or None,
        "cell": told.cell,
        "array": job_array.as_object(told.elements, told.row) if told.elements else None,
        "away": told.away,
        "rejected": [
            {"at_ms": at_ms, "sentence": rejection(event), "answer": plain(event)} for at_ms, event in told.rejected
        ],
        "reason": None if told.reason is None else job_reason.as_object(told.reason[0]),
        # The row of an array that is over tells the worst end of its elements: counts tell them all.
        "row": None if told.row is None or told.elements else job_object(told.row),
        "story": [
            {
                "version": news.version,
                "at_ms": news.at_ms,
                "sentence": sentence(news.event, news.at_ms),
                "effect": plain(news.event),
            }
            for news in told.news
            if isinstance(news.event, Effect)
        ],
        "places": [
            {
                "attempt": stay.attempt,
                "rank": stay.place.rank,
                "node": stay.place.node,
                "devices": list(stay.place.devices),
                "state": stay.state,
            }
            for stay in _stays(told)
        ],
    }
