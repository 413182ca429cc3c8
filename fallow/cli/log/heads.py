"""The heads that kept a job back, each as the log tells of it at the decision that said so."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.cli.job.story.head_words import head_words
from fallow.cli.log.past import Then, open_past
from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.file_in_force import from_effect
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log
from fallow.shared.log.snapshots import NoUsableSnapshot


async def heads_then(log: Log, layout: Layout, cell: str, job_id: str, versions: Sequence[int]) -> dict[int, str]:
    """The head behind each of these versions, the smallest first, in words. One of which the log tells no more, or
    which was gone within the same decision, is left out, and so is all that a damaged log keeps from being built again.
    Raises LogUnavailable, LogTruncated.
    """
    if not versions:
        return {}
    found = dict[int, str]()
    try:
        async with open_past(log, layout, cell, Then(version=versions[0])) as past:
            for version in versions:
                told = _head_in(await past.go_to(Then(version=version)), job_id)
                if told is not None:
                    found[version] = told
    except (DamagedLog, NoUsableSnapshot):
        return found
    return found


def _head_in(state: CellState, job_id: str) -> str | None:
    """The head that this job may not pass, by the queues of the cell file that was in force."""
    job = state.jobs.get(job_id)
    if job is None or job.status not in WAITING or state.cell_file is None:
        return None
    try:
        queues = from_effect(state.cell_file).cell(state.cell).queues
    except (ValueError, KeyError):  # a file of another release
        return None
    behind = why_not(state, job, queues, state.at_ms).behind
    return None if behind is None else head_words(behind)
