"""KAI's scale set is as large as its own tests have it, and a row says what has to be known of its figure."""

from __future__ import annotations

import pytest
import typer

from fallow.bench.kai.a1 import Row, cannot_run, cases_of, figure_of
from fallow.bench.kai.cases import BY_NAME, CASES, NODES, NODES_MIN, Plan, cell_of, specs
from fallow.bench.kai.run import Outcome
from fallow.bench.load.processor_time import Used
from fallow.shared.events.fields.values import GPU, VirtualRun
from fallow.shared.events.operations import PreemptionMode

USED = Used(10.0, {"placement": 5.0}, 0.1)


def plan_of(name: str, nodes: int = NODES) -> Plan:
    return BY_NAME[name].plan(nodes)


def asked(name: str) -> tuple[int, int, int]:
    """How many jobs, workers of each and GPUs of a worker a case asks for at KAI's size."""
    found = specs(plan_of(name).asked, 0)
    return len(found), found[0].workers, found[0].resources.gpu_milli // GPU


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("a", (4_000, 1, 1)),
        ("b", (4_000, 1, 1)),
        ("c", (4_000, 1, 1)),
        ("d", (1, 250, 8)),
        ("e", (10, 1, 1)),
        ("f", (4_000, 1, 1)),
        ("g", (50, 10, 5)),
        ("h", (1, 500, 8)),
        ("i", (41, 10, 6)),
        ("near_miss", (1, 10, 8)),
        ("topology", (1, 512, 2)),
    ],
)
def test_a_case_asks_for_as_much_as_kais(name: str, size: tuple[int, int, int]) -> None:
    assert asked(name) == size


def test_the_burst_has_ninety_jobs_of_each_size_and_kais_bound() -> None:
    jobs = specs(plan_of("k").asked, 0)
    sizes = {job.workers for job in jobs}
    assert sizes == {1 << power for power in range(9)}
    assert sum(job.workers for job in jobs) == 45_990
    assert all(sum(job.workers == size for job in jobs) == 90 for size in sizes)
    runs_ms = [job.run.duration_ms or 0 for job in jobs if isinstance(job.run, VirtualRun)]
    assert (min(runs_ms), max(runs_ms)) == (20_000, 40_000)
    work_ms = sum(job.workers * ms for job, ms in zip(jobs, runs_ms, strict=True))
    assert work_ms / NODES / 1_000 == pytest.approx(2_759, rel=0.01)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("nodes", [NODES_MIN, NODES])
def test_the_cell_of_a_case_lets_jobs_yield_and_holds_what_runs_in_it(case: object, nodes: int) -> None:
    assert case in CASES
    plan = BY_NAME[case.name].plan(nodes)
    cell = cell_of(plan)
    assert len(cell.nodes) == plan.nodes
    assert cell.cell_file.cells[0].policy.preemption is PreemptionMode.ALL
    assert sum(job.gpus_milli for job in specs(plan.fill, 0)) <= plan.gpus * GPU
    assert {each.tenant for each in plan.fill + plan.stuck + plan.asked} <= {
        tenant.name for tenant in cell.cell_file.tenants
    }


def test_in_a_near_miss_the_gang_may_have_all_that_it_wants_but_one_gpu() -> None:
    plan = plan_of("near_miss")
    borrowed = plan.fill[0].count - plan.guaranteed["queue-0"]
    wanted = plan.asked[0].workers * plan.asked[0].gpus
    assert (borrowed, wanted, plan.guaranteed["queue-1"]) == (79, 80, 80)
    assert sum(each.count for each in plan.fill) == plan.gpus
    assert plan_of("near_miss_5000").nodes == 5_000


def test_nodes_of_the_topology_set_stand_in_racks_of_two() -> None:
    nodes = cell_of(plan_of("topology")).nodes
    assert len({node.position.leaf for node in nodes}) == 256
    assert len({node.position.spine for node in nodes}) == 32
    assert len({node.position.superspine for node in nodes}) == 4


def test_the_burst_runs_only_where_it_is_named() -> None:
    assert "k" not in [case.name for case in cases_of(None)]
    assert len(cases_of(None)) == len(CASES) - 1
    assert [case.name for case in cases_of(["k", "j", "a"])] == ["a", "near_miss", "k"]


def test_a_case_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        cases_of(["z"])
    assert "--case" in capsys.readouterr().err


def row(name: str, seconds: float | None = 2.0, search_ms: float | None = None) -> Row:
    return Row(BY_NAME[name], plan_of(name), Outcome(seconds, USED, 7, search_ms))


def test_rows_have_kais_seconds_where_it_tells_any_and_the_search_where_it_is_a_verdict() -> None:
    told = {each.case.name: each.as_json() for each in [row("f"), row("near_miss", 0.2, 41.0), row("k")]}
    near = BY_NAME["near_miss_5000"]
    told[near.name] = Row(near, near.plan(NODES), Outcome(0.9, USED, 0, 400.0)).as_json()
    assert (told["f"]["case"], told["f"]["seconds"], told["f"]["kai_s"]) == ("f", 2.0, 694.5)
    assert "search_ms" not in told["f"]
    assert (told["near_miss"]["search_ms"], told["near_miss"]["kai_s"]) == (41.0, 249.5)
    assert "kai_s" not in told["near_miss_5000"]
    assert "kai_s" not in told["k"]


def test_a_case_that_cannot_run_has_a_row_that_says_why() -> None:
    plan = plan_of("d")
    found = Row(BY_NAME["d"], plan, cannot_run(plan)).as_json()
    assert found["seconds"] is None
    assert str(found["note"]).startswith("cannot run: 2000 jobs would have to yield to one")


def test_the_figure_is_as_busy_as_its_cases_were() -> None:
    figure = figure_of([row("a"), row("b")], NODES, durable=True)
    assert figure.used.by_process == {"placement": 10.0}
    assert (figure.used.wall_s, figure.used.others_cores) == (20.0, 0.1)
    assert figure.lines[0].startswith("a: 2.00 s, KAI 397.8 s (199 times)")


def test_a_cell_of_another_size_is_told_and_not_compared() -> None:
    small = Row(BY_NAME["a"], plan_of("a", 20), Outcome(2.0, USED))
    assert "times" not in str(small)
    assert small.note is not None
    assert row("a").note is None
