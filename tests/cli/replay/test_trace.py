"""Traces as commands and nodes."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.replay.names import job_ids
from fallow.replay.trace import counted_nodes, read_nodes, read_trace, workload_of
from fallow.replay.workload import PRIORITY_MAX, Workload, WorkloadError
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.fields.values import GPU, VirtualRun
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from tests.hypothesis_profile import reaches

HEAD = "job_id,tenant,submit_s,gpus,workers,gpus_per_worker,gpu_type,duration_s,kind,status\n"
JOBS = HEAD + "B,t1,10,16,2,8.0,A100,60,training,\na,T 2,0,1,1,1,,5.5,training,\n"


def written(folder: Path, text: str, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def workload(path: Path, *, carry: Path | None = None, limit: int | None = None, typed: bool = False) -> Workload:
    trace = read_trace(path, carry, limit)
    return workload_of(trace, counted_nodes(2, 8), QueueDiscipline.STRICT_FIFO, typed=typed)


def submits(load: Workload) -> list[SubmitJob]:
    return [timed.command for timed in load.commands if isinstance(timed.command, SubmitJob)]


def test_jobs_come_in_the_order_of_time_and_id_with_times_in_milliseconds(tmp_path: Path) -> None:
    first, second = submits(workload(written(tmp_path, JOBS)))
    assert isinstance(first.job.run, VirtualRun)
    assert (first.job.id, first.submit_ms, first.job.run.duration_ms) == ("a", 0, 5500)
    assert (second.job.id, second.submit_ms, second.job.workers, second.job.resources.gpu_milli) == (
        "b",
        10_000,
        2,
        8000,
    )


def test_a_command_of_a_trace_is_what_a_submitter_would_send(tmp_path: Path) -> None:
    for submit in submits(workload(written(tmp_path, JOBS), typed=True)):
        assert decode(submit.type, encode(submit)) == submit


def test_names_are_made_to_fit_the_rules_and_stay_apart(tmp_path: Path) -> None:
    load = workload(
        written(tmp_path, HEAD + "J/1,T 2,0,1,1,1,,1,training,\nj-1,t-2,1,1,1,1,,1,training,\nx,,2,1,1,1,,1,,\n")
    )
    assert [(s.job.id, s.job.tenant) for s in submits(load)] == [("j-1", "t-2"), ("j-1-2", "t-2-2"), ("x", "default")]
    assert [tenant.name for tenant in load.cell_file.tenants] == ["t-2", "t-2-2", "default"]


def test_no_job_of_a_trace_is_named_as_elements_of_arrays_are_and_a_node_may_have_an_address(tmp_path: Path) -> None:
    """Ids that went through a table of floats end so, and the steps of a Slurm job."""
    rows = "".join(f"{job},t,0,1,1,1,,1,,\n" for job in ("1234.0", "1234-0", "1234.batch", "77.3.", "a.0", "a", "A.0"))
    load = workload(written(tmp_path, HEAD + rows))
    assert [s.job.id for s in submits(load)] == ["1234-0", "1234-0-2", "1234.batch", "77-3", "a", "a-0", "a-0-2"]
    nodes = read_nodes(written(tmp_path, "node_id,gpu_type,gpus\n10.0.0.7,A100,8\n", "nodes.csv"))
    assert [node.id for node in nodes] == ["10.0.0.7"]


ONLY_NEEDED = "job_id,tenant,submit_s,gpus,duration_s\n"


@pytest.mark.parametrize(
    ("gpus", "workers", "gpu_milli"),
    [
        ("8", 1, 8_000),
        ("16", 2, 8_000),
        ("64", 8, 8_000),
        ("12", 2, 6_000),
        ("20", 4, 5_000),
        ("11", 11, 1_000),
        ("0.5", 1, 500),
        ("8.5", 1, 8_500),
        ("0", 1, 0),
        ("9999999999", 1, 9_999_999_999_000),
    ],
)
def test_a_job_of_which_no_workers_are_told_is_split_into_the_fewest_equal_ones_that_fit_into_a_node(
    tmp_path: Path, gpus: str, workers: int, gpu_milli: int
) -> None:
    [only] = submits(workload(written(tmp_path, f"{ONLY_NEEDED}a,t,0,{gpus},60\n")))
    assert (only.job.workers, only.job.resources.gpu_milli) == (workers, gpu_milli)
    [told] = submits(workload(written(tmp_path, f"{HEAD}a,t,0,{gpus},1,,,60,,\n")))
    assert (told.job.workers, told.job.resources.gpu_milli) == (1, gpu_milli if workers == 1 else int(gpus) * 1000)


def test_workers_follow_from_the_gpus_of_each(tmp_path: Path) -> None:
    two, one = submits(workload(written(tmp_path, f"{HEAD}a,t,0,8,,4,,60,,\nb,t,0,8,,8,,60,,\n")))
    assert (two.job.workers, two.job.resources.gpu_milli) == (2, 4_000)
    assert (one.job.workers, one.job.resources.gpu_milli) == (1, 8_000)


ASKED = st.tuples(st.integers(1, 64), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
IN_ORDER = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda asked: (asked[0] * asked[1], *asked))


@given(ASKED | IN_ORDER)
def test_a_job_of_a_trace_runs_with_all_its_gpus_or_is_a_mistake_of_its_line(
    asked: tuple[int, int | None, int | None],
) -> None:
    gpus, workers, each = asked
    row = f"a,t,0,{gpus},{workers or ''},{each or ''},,60,,\n"
    is_wrong = each is not None and gpus != each * (workers or gpus // each)
    is_told = workers is not None and workers > 1 and each is not None
    reaches("a job of several workers of so many GPUs each is in order", is_told and not is_wrong)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), HEAD + row)
        if is_wrong:
            with pytest.raises(WorkloadError, match=f"jobs.csv line 2: gpus = '{gpus}': "):
                read_trace(path)
            return
        (job,) = read_trace(path).jobs
    assert workers is None or job.workers == workers
    assert gpus * GPU - job.workers < job.workers * job.gpu_milli <= gpus * GPU


def test_a_job_is_split_by_the_nodes_of_its_type(tmp_path: Path) -> None:
    nodes = read_nodes(written(tmp_path, "node_id,gpu_type,gpus\nn1,a100,8\nn2,t4,4\n", "nodes.csv"))
    rows = "".join(f"{job},t,0,8,,,{kind},60,,\n" for job, kind in (("a", "a100"), ("b", "t4"), ("c", "")))
    trace = read_trace(written(tmp_path, HEAD + rows))
    load = workload_of(trace, nodes, QueueDiscipline.STRICT_FIFO, typed=True)
    assert [(s.job.id, s.job.workers) for s in submits(load)] == [("a", 1), ("b", 2), ("c", 1)]


def test_a_gzipped_file_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(JOBS.encode()))
    assert workload(path) == workload(written(tmp_path, JOBS))


def test_carried_jobs_come_first_at_time_zero_with_the_highest_priority(tmp_path: Path) -> None:
    carry = written(tmp_path, HEAD + "z,t1,99,8,1,8,,60,training,\ny,t1,0,8,1,8,,60,training,\n", "carry.csv")
    load = workload(written(tmp_path, JOBS), carry=carry)
    assert [(t.at_ms, s.job.id, s.job.priority) for t, s in zip(load.commands, submits(load), strict=True)] == [
        (0, "z", PRIORITY_MAX),
        (0, "y", PRIORITY_MAX),
        (0, "a", 0),
        (10_000, "b", 0),
    ]
    assert load.carried == {"t1/y", "t1/z"}


def test_a_limit_takes_the_earliest_jobs(tmp_path: Path) -> None:
    assert [s.job.id for s in submits(workload(written(tmp_path, JOBS), limit=1))] == ["a"]


@pytest.mark.parametrize("gpus", ["0", "1.5"])
def test_what_the_language_does_not_allow_is_sent_for_admission_to_turn_away(tmp_path: Path, gpus: str) -> None:
    (submit,) = submits(workload(written(tmp_path, HEAD + f"a,t,0,{gpus},1,{gpus},,60,training,\n")))
    answer = decode(submit.type, encode(submit))
    assert isinstance(answer, Undecodable)
    assert answer.field == "job.resources.gpu_milli"


def test_a_fraction_of_a_gpu_is_exact_in_milli_gpus(tmp_path: Path) -> None:
    (submit,) = submits(workload(written(tmp_path, HEAD + "a,t,0,0.46,1,0.46,,60,inference,\n")))
    assert submit.job.resources.gpu_milli == 460


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,t,soon,1,1,1,,1,,", "jobs.csv line 2: submit_s = 'soon': must be a number"),
        ("a,t,1_0,1,1,1,,1,,", "jobs.csv line 2: submit_s = '1_0': must be a number"),
        ("a,t,-1,1,1,1,,1,,", "jobs.csv line 2: submit_s = '-1': must be from 0 to 1000000000000"),
        ("a,t,1,1,1,1,,1e99999999,,", "duration_s = '1e99999999': must be from 0 to 1000000000000"),
        (f"a,t,1,{'9' * 5_000},1,1,,1,,", f"gpus = '{'9' * 96}...: must be from 0 to 1000000000000"),
        (f"a,t,1,{'x' * 5_000},1,1,,1,,", f"gpus = '{'x' * 96}...: must be a number"),
        ("a,t,0,1,1.5,1,,1,,", "jobs.csv line 2: workers = '1.5': must be a whole number"),
        ("a,t,0,10,,4,,1,,", "jobs.csv line 2: gpus = '10': must be a multiple of gpus_per_worker, 4"),
        ("a,t,0,10,3,4,,1,,", r"jobs.csv line 2: gpus = '10': 3 workers of 4 GPUs \(gpus_per_worker\) have 12 in all"),
        ("a,t,0,1000000000000,,1e-20,,1,,", "jobs.csv line 2: gpus_per_worker = '1e-20': must be 0 or at least 0.001"),
        ("a,t", "jobs.csv line 2: submit_s is missing: the row ends before"),
        ("a,t,0,1,1,1,,1,,,", r"cannot be read: line 2: cell 11 = '': the table has 10 columns$"),
        ("a,t,0,1,1,1,,1,,,more,9", r"cannot be read: line 2: cell 11 = 'more': the table has 10 columns$"),
        *(
            (row, rf"jobs.csv line 2: {field} = '.*': must be one line without control characters$")
            for field, row in {
                "job_id": "a\x1b[2J,t,0,1,1,1,,1,,",
                "tenant": "a,\u202et,0,1,1,1,,1,,",
                "gpu_type": "a,t,0,1,1,1,\x07,1,,",
                "kind": "a,t,0,1,1,1,,1,\x9b1m,",
            }.items()
        ),
    ],
)
def test_a_mistake_is_told_with_line_field_value_and_rule(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        workload(written(tmp_path, HEAD + row + "\n"))


@pytest.mark.parametrize("between", ["b,t,0,1,1,1,,1,,\n", ""])
def test_a_tenant_uses_an_id_once_in_a_trace(tmp_path: Path, between: str) -> None:
    line = between.count("\n") + 3
    path = written(tmp_path, f"{HEAD}a,t,0,1,1,1,,1,,\n{between}a,t,5,1,1,1,,1,,\n")
    with pytest.raises(WorkloadError, match=f"^jobs.csv line {line}: job_id = 'a': jobs.csv line 2 has it already$"):
        read_trace(path)


def test_a_job_that_runs_already_does_not_come_again(tmp_path: Path) -> None:
    carry = written(tmp_path, f"{HEAD}B,t1,0,1,1,1,,1,,\n", "carry.csv")
    with pytest.raises(WorkloadError, match=r"^jobs.csv line 2: job_id = 'B': carry.csv line 2 has it already$"):
        read_trace(written(tmp_path, JOBS), carry)


def test_it_does_not_either_where_both_files_have_one_name_and_it_stands_in_the_same_line(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    carried, jobs = (written(folder, JOBS) for folder in folders)
    told = rf"^{re.escape(str(jobs))} line 2: job_id = 'B': {re.escape(str(carried))} line 2 has it already$"
    with pytest.raises(WorkloadError, match=told):
        read_trace(jobs, carried)


def test_jobs_of_two_tenants_may_have_one_id(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEAD}a,t,0,1,1,1,,1,,\na,u,1,1,1,1,,1,,\n")
    assert [(job.tenant, job.id) for job in read_trace(path).jobs] == [("t", "a"), ("u", "a-2")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("n1,A,8", "nodes.csv line 3: node_id = 'n1': nodes.csv line 2 has it already"),
        ("n\x1b,A,8", r"nodes.csv line 3: node_id = 'n\\x1b': must be one line without control characters"),
        ("n2,A\x1b,8", r"nodes.csv line 3: gpu_type = 'A\\x1b': must be one line without control characters"),
        ("n2,A,8,9", "cannot be read: line 3: cell 4 = '9': the table has 3 columns"),
    ],
)
def test_a_mistake_of_a_node_is_told_likewise(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=f"{message}$"):
        read_nodes(written(tmp_path, f"node_id,gpu_type,gpus\nn1,A,8\n{row}\n", "nodes.csv"))


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress((HEAD + "".join(f"a{n},t,0,1,1,1,,1,,\n" for n in range(5_000))).encode()))
    packed[200:260] = b"\xff" * 60
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(bytes(packed))
    with pytest.raises(WorkloadError, match=r"jobs\.csv\.gz: cannot be read: "):
        read_trace(path)


@pytest.mark.parametrize("beginning", ["a", "a" * 120])
def test_many_jobs_of_one_name_or_one_beginning_are_named_in_one_go(beginning: str) -> None:
    """Each number is tried once: 20,000 names took a minute."""
    names, ids = [f"{beginning}.{n % 10_000:08}" if len(beginning) > 1 else beginning for n in range(20_000)], job_ids()
    ids.taken = taken = Counted()
    found = [ids.fresh(name) for name in names]
    assert len(dict.fromkeys(found)) == len(names)
    assert taken.looks <= 3 * len(names)


class Counted(dict[str, None]):
    """Counts how often it is asked."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="column tenant is missing"):
        workload(written(tmp_path, "job_id,submit_s\n"))


def test_nodes_of_a_file_make_one_pool_for_each_gpu_type_and_those_without_gpus_stay_away(tmp_path: Path) -> None:
    text = "node_id,gpu_type,gpus,cpus,memory_gib\nN0,,0,32.0,256.0\nN1,A100,8,96,512.5\nN2,T4,2,8,32\nN3,A100,4,1,1\n"
    nodes = read_nodes(written(tmp_path, text, "nodes.csv"))
    assert [(n.id, n.pool, n.gpu_type, n.gpus, n.cpu_milli, n.memory_mib) for n in nodes] == [
        ("n1", "a100", "A100", 8, 96_000, 524_800),
        ("n2", "t4", "T4", 2, 8_000, 32_768),
        ("n3", "a100", "A100", 4, 1_000, 1_024),
    ]
    pools = workload_of(read_trace(written(tmp_path, JOBS)), nodes, QueueDiscipline.STRICT_FIFO, typed=True).cell_file
    assert [(p.name, p.gpus, p.gpus_per_node) for p in pools.cells[0].pools] == [("a100", 12, 8), ("t4", 2, 2)]


@pytest.mark.parametrize("read", [read_nodes, read_trace])
def test_a_device_is_no_trace(read: Callable[[Path], object]) -> None:
    with pytest.raises(WorkloadError, match=r"^/dev/zero: cannot be read: must be a regular file or a pipe$"):
        read(Path("/dev/zero"))
