"""`fallow bench openb`: pods with shares of GPUs on a cluster of several GPU types, by the protocol of FGD."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.bench.openb.draw import Draw, drawn
from fallow.bench.openb.files import Pod, read_nodes, read_pods
from fallow.bench.openb.fragments import Fragments
from fallow.cli.app import app
from fallow.cli.errors.failures import Exit
from tests.cli.bench.openb_recompute import Kind, figures
from tests.cli.usage.test_commands import call

RUN = CliRunner()
ROOT = Path(__file__).parents[3]
FOLDER = os.environ.get("FALLOW_TRACES", "")
NEEDS_TRACES = pytest.mark.skipif(not FOLDER, reason="FALLOW_TRACES names no folder of traces")

NODES = (
    "sn,cpu_milli,memory_mib,gpu,model",
    *(f"t-{number},8000,8192,2,T4" for number in range(8)),
    *(f"g-{number},96000,65536,8,G2" for number in range(6)),
    *(f"v-{number},32000,65536,4,V100M16" for number in range(3)),
    *(f"w-{number},32000,65536,4,V100M32" for number in range(3)),
    "c-0,64000,65536,0,",
)
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p-1,4000,4096,1,1000,
p-2,2000,2048,1,810,
p-3,6000,4096,1,470,
p-4,3000,2048,1,230,T4|G2
p-5,12000,8192,0,0,
p-6,24000,8192,4,1000,V100M16|V100M32
p-7,8000,4096,1,1000,
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text("\n".join(NODES) + "\n", encoding="utf-8")
    (tmp_path / "pods.csv").write_text(PODS, encoding="utf-8")
    return ["bench", "openb", "--pods", str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv")]


def told(asked: list[str]) -> dict[str, Any]:
    done = RUN.invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.splitlines()[-1]))


def kinds(path: Path) -> list[Kind]:
    return [Kind(pod.gpu_milli, pod.cpu_milli, pod.types) for pod in read_pods(path)]


def test_both_forms_of_the_files_are_read(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv.gz", tmp_path / "pods.csv.gz"
    with gzip.open(nodes, "wt") as file:
        file.write("node_id,gpu_type,gpus,cpus,memory_gib\nb,T4,2,8.0,8.0\na,G2,8,96.0,64.0\nc,,0,32.0,256.0\n")
    with gzip.open(pods, "wt") as file:
        file.write("job_id,gpu_type,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,,4000,512,2,1000\ny,G2|A10,1,1,1,470\n")
    assert [(n.id, n.pool, n.gpus, n.cpu_milli, n.memory_mib) for n in read_nodes(nodes)] == [
        ("a", "g2", 8, 96_000, 65_536),
        ("b", "t4", 2, 8_000, 8_192),
    ]
    assert read_pods(pods) == (Pod("x", 2_000, 4_000, 512), Pod("y", 470, 1, 1, ("A10", "G2")))


@pytest.mark.parametrize("how", list(Draw))
def test_the_same_seed_draws_the_same_pods_until_they_want_130_percent(how: Draw) -> None:
    pods = [Pod(f"p-{number}", 100 * number, 0, 0) for number in range(1, 10)]
    one, again, other = (drawn(pods, 20_000, seed, how) for seed in (1, 1, 2))
    assert one == again != other
    assert 25_000 < sum(pod.gpu_milli for pod in one) < 27_000


def test_fragments_are_what_the_usual_pods_cannot_use() -> None:
    """Of 1,500 free on two devices the pod of 1,000 leaves 500, that of many CPUs and that without GPUs leave all."""
    pods = [Pod("a", 1_000, 4_000, 0), Pod("b", 1_000, 64_000, 0), Pod("c", 0, 1_000, 0), Pod("d", 500, 0, 0)]
    fragments = Fragments(pods)
    assert (fragments.total, fragments.amount("T4", 8_000, (1_000, 500))) == (4, 500 + 1_500 + 1_500)


@pytest.mark.parametrize("policy", ["fallow", "random", "best-fit", "fgd", "first-fit"])
def test_each_figure_can_be_computed_again_from_the_tables(files: list[str], tmp_path: Path, policy: str) -> None:
    found = told([*files, "--seeds", "3", "--policy", policy, "--out", str(tmp_path / "out")])
    trace = kinds(tmp_path / "pods.csv")
    again = [figures(tmp_path / "out", trace, each["seed"]) for each in found["per_seed"]]
    assert [each.is_sound for each in again] == [True] * 3
    assert [each.allocation_pct for each in again] == [
        pytest.approx(each["allocation_pct_at_100"], abs=0.001) for each in found["per_seed"]
    ]
    assert [each.fragmentation_pct for each in again] == [
        pytest.approx(each["fragmentation_pct_at_100"], abs=0.001) for each in found["per_seed"]
    ]
    mean = sum(each.allocation_pct for each in again) / 3
    assert found["allocation_pct_at_100"] == pytest.approx(mean, abs=0.001)
    assert [moment["arrived_pct"] for moment in found["curve"]] == list(range(0, 131, 5))


def test_a_small_cluster_is_handed_out_as_known(files: list[str]) -> None:
    rules = ("fallow", "best-fit", "random")
    found = [told([*files, "--seeds", "8", "--policy", policy])["allocation_pct_at_100"] for policy in rules]
    assert found == [70.7, 61.751, 62.32]


def test_tables_are_the_same_bytes_under_every_seed_of_hashes(files: list[str], tmp_path: Path) -> None:
    tables = []
    for hashes in ("1", "2"):
        out = tmp_path / hashes
        asked = [sys.executable, "-m", "fallow.cli", *files, "--seeds", "1", "--out", str(out)]
        subprocess.run(asked, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True)
        tables.append((out / "placements.csv").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") > 50


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--policy", "none", "--policy = 'none': must be one of fallow, random"),
        ("--draw", "none", "--draw = 'none': must be one of replacement, simulator"),
        ("--pods", "missing.csv", "--pods = 'missing.csv': cannot be used"),
    ],
)
def test_what_cannot_be_used_is_told(files: list[str], option: str, value: str, says: str) -> None:
    at = files.index(option) if option in files else len(files)
    done = call(*files[:at], option, value, *files[at + 2 :])
    assert (done.returncode, says in done.stderr) == (Exit.USAGE, True), done.stderr


@pytest.mark.parametrize(
    ("row", "says"),
    [("p,x,1,1,1000,", "line 2: not a pod"), ("p,1,1,2,500,", "line 2: 2 GPUs of 500 milli-GPUs are no request")],
)
def test_a_row_that_is_no_pod_is_told_with_its_line(files: list[str], tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "pods.csv").write_text(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{row}\n")
    done = RUN.invoke(app, files)
    assert (done.exit_code, says in done.output) == (Exit.USAGE, True)


def test_a_node_has_one_row(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("\n".join([*NODES[:2], "t-0,8000,8192,1,T4"]))
    done = RUN.invoke(app, files)
    assert (done.exit_code, "line 3: node 't-0': line 2 has it already" in " ".join(done.output.split())) == (2, True)


@NEEDS_TRACES
def test_a_real_cluster_is_handed_out_at_least_as_well_as_promised(tmp_path: Path) -> None:
    pods, nodes = Path(FOLDER) / "openb_pods_default.csv.gz", Path(FOLDER) / "nodes_openb.csv.gz"
    asked = ["bench", "openb", "--pods", str(pods), "--nodes", str(nodes), "--seeds", "1", "--out", str(tmp_path)]
    found = told(asked)
    assert found["allocation_pct_at_100"] >= 95.5
    again = figures(tmp_path, kinds(pods), 42)
    assert again.is_sound
    assert again.allocation_pct == pytest.approx(found["allocation_pct_at_100"], abs=0.001)
    assert again.fragmentation_pct == pytest.approx(found["fragmentation_pct_at_100"], abs=0.001)


@NEEDS_TRACES
@pytest.mark.parametrize(
    ("policy", "allocation_pct", "fragmentation_pct"),
    [("random", 86.3, 13.5), ("best-fit", 92.9, 7.1), ("fgd", 95.2, 4.7)],
)
def test_known_rules_come_to_their_published_figures(
    policy: str, allocation_pct: float, fragmentation_pct: float
) -> None:
    pods, nodes = Path(FOLDER) / "openb_pods_default.csv.gz", Path(FOLDER) / "nodes_openb.csv.gz"
    asked = ["bench", "openb", "--pods", str(pods), "--nodes", str(nodes), "--policy", policy, "--draw", "simulator"]
    found = told([*asked, "--seeds", "1"])
    assert found["allocation_pct_at_100"] == pytest.approx(allocation_pct, abs=0.7)
    assert found["fragmentation_pct_at_100"] == pytest.approx(fragmentation_pct, abs=0.7)
