"""What the benchmarks say can be trusted: their jobs, their sums and their keys."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from pathlib import Path
from time import process_time

import pytest
from typer.testing import CliRunner

from fallow.bench.borrowing.contention import K1
from fallow.bench.borrowing.contention import cell_of as contended
from fallow.bench.borrowing.deep_queue import cell_of as deep_queue
from fallow.bench.command import app
from fallow.bench.figure import Figure
from fallow.bench.latency import answers_of
from fallow.bench.load.arrivals import Told
from fallow.bench.load.baseline import hops
from fallow.bench.load.job_mix import GPUS_MEAN, job_id, jobs, number_of, run_ms_for
from fallow.bench.load.load import Load, percentile
from fallow.bench.load.machine import UNKNOWN, filesystem_of
from fallow.bench.load.processor_time import ProcessorTime, Used, process_seconds
from fallow.bench.load.relay import Hop
from fallow.bench.load.stages import cell_of
from fallow.bench.load.traffic import Flow
from fallow.bench.real.cell import real_cell
from fallow.bench.real.mix import RealMix
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.codec.encoding import decode
from fallow.shared.events.fields.values import VirtualRun
from fallow.shared.events.queue import QueueOrder
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.runtime.files.cell_file import parse_cell_file

SHIPPED = Path(__file__).parents[3] / "deploy" / "cell.yaml"
QUIET = Used(10.0, {"placement": 5.0}, 0.1)


def submitted(count: int) -> list[SubmitJob]:
    """Jobs of the load, as admission reads them."""
    events = [decode(SubmitJob.type, job.value) for job in jobs(0, count, 1_600, 12, 0)]
    return [event for event in events if isinstance(event, SubmitJob)]


def load_of(due_s: list[float], started_s: list[float], rate: float, late_s: float = 0.0) -> Load:
    """A load of ten seconds, the first two of which do not count, by a sender that is late by so much."""
    handed_s = array("d", [at + late_s for at in due_s])
    told = Told(array("d", started_s), started=len(started_s))
    return Load(rate, array("d", due_s), handed_s, told, QUIET, 2.0, 10.0, {}, {}, {})


def test_every_job_of_the_load_is_one_that_admission_can_read() -> None:
    assert len(submitted(1_000)) == 1_000


def test_the_load_has_small_jobs_whole_nodes_and_gangs_in_the_parts_that_it_names() -> None:
    kinds = Counter((event.job.resources.gpu_milli, event.job.workers > 1) for event in submitted(20_000))
    assert kinds[1_000, False] / 20_000 == pytest.approx(0.80, abs=0.01)
    assert kinds[8_000, False] / 20_000 == pytest.approx(0.15, abs=0.01)
    assert kinds[8_000, True] / 20_000 == pytest.approx(0.05, abs=0.01)


def test_a_job_needs_as_many_gpus_in_the_mean_as_the_load_reckons_with() -> None:
    gpus = sum(event.job.gpus_milli for event in submitted(20_000)) / 1_000
    assert gpus / 20_000 == pytest.approx(GPUS_MEAN, rel=0.05)


def test_runs_take_in_the_mean_what_was_asked_for() -> None:
    runs = [event.job.run for event in submitted(20_000)]
    times = [run.duration_ms for run in runs if isinstance(run, VirtualRun) and run.duration_ms is not None]
    assert sum(times) / 20_000 == pytest.approx(1_600, rel=0.02)


def test_the_same_load_is_the_same_to_the_byte() -> None:
    assert list(jobs(5, 50, 800, 12, 7)) == list(jobs(5, 50, 800, 12, 7))


def test_eighty_percent_of_the_gpus_are_busy_at_the_rate_of_the_load() -> None:
    assert run_ms_for(5_000, 5_000) == 1_600
    assert run_ms_for(10_000, 5_000) == 800


def test_a_job_is_found_again_by_its_id() -> None:
    assert number_of(job_id(1_234)) == 1_234
    assert number_of("node-00001") is None
    assert number_of("") is None


def test_own_processor_time_is_told_by_name() -> None:
    watch = ProcessorTime({"this": os.getpid()})
    until_s = process_time() + 0.2
    while process_time() < until_s:
        pass
    assert watch.used().by_process["this"] == pytest.approx(0.2, abs=0.1)


def test_a_process_that_is_gone_used_nothing() -> None:
    assert process_seconds(2**22 + 1) == 0.0


def test_a_file_system_in_memory_is_told_from_one_on_disk() -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(Path(__file__)) not in {"proc", "sysfs", UNKNOWN}
    assert filesystem_of(Path("/no/such/folder")) == filesystem_of(Path("/"))


def test_the_cells_of_benchmarks_go_by_the_limits_and_policy_that_a_cell_file_has_by_itself() -> None:
    part = CellPart(name="bare", ordinal=0, pools=(Pool(name="p", gpus=8),))
    bare = CellFile(cells=(part,), tenants=(Tenant(name="one"),))
    shipped = parse_cell_file(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED))
    assert (shipped.limits, shipped.cells[0].policy) == (bare.limits, bare.cells[0].policy)
    assert shipped.cells[0].queues == (Queue(name="default"),)
    for cell in (cell_of(2), cell_of(2, has_quotas=True), real_cell(2, RealMix(5)), contended(K1), deep_queue()):
        assert cell.cell_file.limits == bare.limits
        assert cell.cell_file.cells[0].policy == bare.cells[0].policy
        by_shares = QueueOrder.FAIR_SHARE if cell.cell_file == deep_queue().cell_file else QueueOrder.FIFO
        assert cell.cell_file.cells[0].queues == (Queue(name="default", order=by_shares),)


def test_a_machine_that_others_use_is_called_busy() -> None:
    assert Used(1.0, {}, 0.31).remark == "busy: others used 0.31 cores"
    assert Used(1.0, {}, 0.30).remark == "quiet: others used 0.30 cores"


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([float(value) for value in range(1, 101)], 50) == 50.0
    assert percentile([float(value) for value in range(1, 101)], 99) == 99.0
    assert percentile([], 99) is None


def test_a_job_that_never_started_has_no_percentile_to_hide_behind() -> None:
    load = load_of([3.0, 4.0], [3.1, -1.0], rate=1)
    assert percentile(load.waits_ms(), 99) is None


def test_jobs_of_the_first_part_are_left_out_of_the_waits() -> None:
    assert load_of([1.0, 4.0], [1.9, 4.5], rate=1).waits_ms() == [500.0]


def test_a_wait_counts_from_when_the_job_is_due_however_late_its_sender_was() -> None:
    load = load_of([3.0, 4.0], [3.5, 4.5], rate=1, late_s=0.2)
    assert load.waits_ms() == [500.0, 500.0]
    assert load.late_ms() == pytest.approx([200.0, 200.0])


def test_what_the_cell_takes_counts_from_when_a_job_was_handed_over() -> None:
    load = load_of([1.0, 3.0, 4.0, 5.0], [1.9, 3.5, 4.7, -1.0], rate=1, late_s=0.2)
    assert load.handed_waits_ms() == pytest.approx([300.0, 500.0, float("inf")])
    load.told.gone_s[3] = 6.0
    assert load.handed_waits_ms() == pytest.approx([300.0, 500.0])
    assert answers_of(200, load) == {
        "p50_ms_at_200": 500.0,
        "p99_ms_at_200": 700.0,
        "from_handed_p50_ms_at_200": 300.0,
        "from_handed_p99_ms_at_200": 500.0,
        "sender_late_ms_p99_at_200": 200.0,
    }


def test_a_job_that_is_cancelled_before_its_start_neither_waits_nor_is_it_backlog() -> None:
    load = load_of([3.0, 4.0], [3.5, -1.0], rate=1)
    load.told.gone_s[1] = 5.0
    assert load.waits_ms() == [500.0]
    assert [load.backlog(at_s) for at_s in (4.5, 6.0)] == [1, 0]


def test_waits_of_some_jobs_can_be_asked_for() -> None:
    assert load_of([3.0, 4.0, 5.0], [3.5, 4.2, 5.1], rate=1).waits_ms([0, 1]) == pytest.approx([200.0, 500.0])


def test_a_backlog_that_grows_by_a_second_of_arrivals_is_not_flat() -> None:
    sent = [float(second) for second in range(10)]
    assert load_of(sent, [at + 0.1 for at in sent], rate=1).is_flat
    assert not load_of(sent, [at if at < 3 else -1.0 for at in sent], rate=1).is_flat


def test_only_starts_within_the_time_count_as_throughput() -> None:
    assert load_of([0.0, 3.0, 9.0], [1.0, 4.0, 11.0], rate=1).jobs_per_s == 1 / 8


def test_the_hops_of_the_baseline_carry_the_bytes_of_the_load() -> None:
    flow = Flow(2.5, 100, (("ce_type", "x"),))
    found = {
        hop.name: hop for hop in hops("kafka:9092", "ns", dict.fromkeys(("jobs", "queue", "nodes", "decisions"), flow))
    }
    assert found["executor"] == Hop(
        "executor", "kafka:9092", {"ns.decisions": 1}, "ns.decisions", "ns.nodes", 2.5, 100, headers=[("ce_type", "x")]
    )
    assert found["placement"].size_bytes == 250
    assert found["admission"].reads == {"ns.submissions": 12}


def test_every_figure_says_where_and_how_undisturbed_it_was_measured() -> None:
    body = Figure("pipeline", [], {"jobs_per_s": 1}, QUIET).as_json()
    assert set(body) == {"jobs_per_s", "others_cpu", "busy", "machine", "loop_s", "commit"}
    assert 0.05 < body["loop_s"] < 600  # type: ignore[operator]  # seconds


def test_a_figure_of_kafka_says_whether_its_records_were_on_disk(capsys: pytest.CaptureFixture[str]) -> None:
    assert Figure("pipeline", [], {}, QUIET, durable=False).as_json()["durable"] is False
    Figure("pipeline", [], {}, QUIET, durable=False).show(as_json=False)
    Figure("pipeline", [], {}, QUIET, durable=True).show(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if "acknowledged" in line] == [
        "flush off",
        "Kafka flushed each record before it acknowledged it",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--quotas",), "--quotas"),
        (("--mix", "friendly", "--backlog", "5"), "--backlog"),
        (("--mix", "friendly", "--classes", "5"), "--classes"),
        (("--mix", "friendly", "--records-by-node"), "--records-by-node"),
        (("--mix", "hard"), "--mix"),
        (("--backlog", "-1"), "--backlog"),
        (("--placement", "tightest"), "--placement"),
    ],
)
def test_options_of_one_load_are_refused_for_the_other(words: tuple[str, ...], named: str) -> None:
    answer = CliRunner().invoke(app, ["pipeline", *words])
    assert answer.exit_code == 2
    assert named in answer.output
