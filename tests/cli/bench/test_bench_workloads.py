"""The workloads of others, as they describe them."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

from fallow.bench.borrowing.contended import Contended, figure_of
from fallow.bench.borrowing.contention import K1, K2, Contention, Sent, cell_of, jobs
from fallow.bench.borrowing.deep_queue import DEEP, NODES, specs
from fallow.bench.figure import NO_EXECUTOR
from fallow.bench.load.arrivals import NEVER, Told
from fallow.bench.load.big_cell import FREE_GPUS, Live, before_snapshot, behind_snapshot
from fallow.bench.load.job_mix import GPUS_PER_NODE, Ready
from fallow.bench.load.processor_time import ProcessorTime
from fallow.bench.load.stages import POOL, SPARE, Staged
from fallow.bench.load.stages import cell_of as cell_of_nodes
from fallow.bench.recover import Recovered
from fallow.bench.recover import lines_of as lines_of_recovery
from fallow.bench.start import VOLCANO_JOBS, Started
from fallow.bench.start import lines_of as lines_of_start
from fallow.replay.workload import CELL
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import decode
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.runtime.stack.child import StackError


@pytest.mark.parametrize(("workload", "count", "queues", "gpus"), [(K1, 15_000, 30, 600), (K2, 50_000, 1_000, 20_000)])
def test_kueues_workloads_have_their_size(workload: Contention, count: int, queues: int, gpus: int) -> None:
    cell = cell_of(workload)
    assert len(jobs(workload, 12, 0)) == count
    assert len(cell.cell_file.tenants) == queues + workload.cohorts
    assert cell.gpus == workload.gpus == gpus


def test_the_least_time_is_that_of_the_work_or_of_the_last_arrival() -> None:
    assert K1.floor_s == pytest.approx(66.0)
    assert K2.floor_s == pytest.approx(4.025)


def test_each_job_comes_when_its_class_has_it_and_in_order() -> None:
    sent = jobs(K1, 12, 0)
    assert [job.at_ms for job in sent] == sorted(job.at_ms for job in sent)
    assert Counter(job.sort for job in sent) == {"small": 10_500, "medium": 3_000, "large": 1_500}
    assert max(job.at_ms for job in sent if job.sort == "large") == 60_000


def test_the_submissions_are_ones_that_admission_reads() -> None:
    event = decode(SubmitJob.type, jobs(K1, 12, 0)[-1].ready.value)
    assert isinstance(event, SubmitJob)
    assert (event.job.priority, event.job.resources.gpu_milli) == (200, 20_000)


def contended(finished: int) -> Staged[Contended, float]:
    """K1, of which so many jobs finished within 66 s."""
    count = 15_000
    sent = [Sent(0, "small", Ready(0, b"", b"", [])) for _ in range(count)]
    started = array("d", [1.0] * finished + [NEVER] * (count - finished))
    over = array("d", [6.0] * finished + [NEVER] * (count - finished))
    told = Told(started, over, started=finished, finished=finished, last_finish_s=66.0)
    return Staged(Contended(sent, [0.0] * count, told, ProcessorTime({}).used()), K1.floor_s, True, {})


def test_of_a_workload_that_finished_the_work_and_what_was_held_for_it_are_told_beside_kueues() -> None:
    figure = figure_of(K1, contended(15_000))
    assert (figure.body["use_pct"], figure.body["held_pct"]) == (100.0, round(100 * 15_000 * 5 / (600 * 66), 1))
    kueue = figure.body["kueue"]
    assert isinstance(kueue, dict)
    assert (kueue["use_pct"], kueue["held_pct"]) == (18.8, 55.9)
    assert "100.0 % of all GPU time is work; Kueue 18.8 %" in figure.lines
    assert figure.lines[-1].endswith("(58.7 % and 6.7 s without), all else is without")


@pytest.mark.parametrize("finished", [150, 14_999])
def test_of_one_that_did_not_finish_no_figure_is_told(finished: int) -> None:
    with pytest.raises(StackError, match=rf"^only {finished} of 15000 jobs finished"):
        figure_of(K1, contended(finished))


def test_a_deep_queue_is_as_deep_as_it_was_reported() -> None:
    fill, stuck, fitting = specs()
    assert (len(fill), len(stuck)) == (NODES, DEEP)
    assert len({job.id for job in (*fill, *stuck, *fitting)}) == len(fill) + len(stuck) + len(fitting)


def test_the_cold_start_has_as_many_jobs_and_workers_as_were_reported() -> None:
    assert (VOLCANO_JOBS.jobs, VOLCANO_JOBS.workers) == (87_031, 149_711)
    assert [Live(2, 1, 9).workers_of(number) for number in range(3)] == [1, 1, 9]


def test_behind_the_snapshot_of_a_cold_start_jobs_come_and_go_on_what_is_free() -> None:
    cell, live = cell_of_nodes(50, spare=2), Live(400, past=250)
    state = CellState(CELL)
    for effect in before_snapshot(cell, live):
        apply(state, effect, 0)
    free, waiting = state.pools[POOL].free_whole, state.waiting
    assert (free, waiting) == (FREE_GPUS, FREE_GPUS)
    for effect in behind_snapshot(cell, live):
        apply(state, effect, 0)
    assert (state.pools[POOL].free_whole, state.waiting, len(state.finished)) == (free, waiting, live.past)
    assert state.pools[SPARE].free_whole == 2 * GPUS_PER_NODE  # they are for other jobs


def test_a_figure_of_a_cell_without_executors_says_so() -> None:
    used = ProcessorTime({}).used()
    assert NO_EXECUTOR in lines_of_start(Started(1.0, 2.0, 0.5, 1_000, 7, used, durable=True), 5, Live(10))
    assert NO_EXECUTOR in lines_of_recovery(Recovered(1.0, 2.0, 3.0, 4, 0, used, durable=True), 10)
