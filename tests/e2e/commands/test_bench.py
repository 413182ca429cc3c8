"""Small sizes of the benchmarks of the whole system, run for real: on a Kafka that they start themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fallow.shared.runtime.stack import kafka_jars

FRIENDLY_KEYS = {
    *("jobs_per_s", "backlog_flat", "ratio_to_baseline", "baseline", "offered_per_s", "quotas", "backlog_growth"),
    *("p50_ms", "p99_ms", "cpu_s_per_1000_jobs", "rss_mb", "bytes_per_job", "records_per_job", "submitted", "started"),
    *("finished", "effects", "nodes", "run_ms_mean", "seconds", "mix", "durable", "busy", "others_cpu", "loop_s"),
}

YIELDED = {"e": 10, "f": 160, "g": 100, "h": 20, "i": 10}
"""Of KAI's cases, on 20 nodes: a job of one GPU for each GPU that is asked for, and of `i` for each node."""

Bench = Callable[..., dict[str, Any]]

NO_JARS = kafka_jars.obstacle()
"""Asked once: Java is started for the answer."""

pytestmark = pytest.mark.skipif(NO_JARS is not None, reason=str(NO_JARS))


@pytest.fixture
def bench(redis_url: str) -> Bench:
    return lambda *words, nodes=50: told_by(*words, nodes=nodes, redis=redis_url)


def told_by(*words: str, nodes: int, redis: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "fallow.cli", "bench", *words, "--nodes", str(nodes), "--json"]
    environment = {**os.environ, "FALLOW_KAFKA": "jars", "FALLOW_REDIS": redis}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.by_turns
def test_a_pipeline_runs_on_a_kafka_that_does_not_flush_where_it_is_told_so(bench: Bench) -> None:
    told = bench("pipeline", "--mix", "friendly", "--rate", "50", "--seconds", "3", "--no-flush")
    assert (told["durable"], told["started"]) == (False, told["submitted"])
    assert set(told) >= FRIENDLY_KEYS


@pytest.mark.by_turns
def test_behind_a_backlog_no_gpu_is_short_of_demand(bench: Bench) -> None:
    told = bench("pipeline", "--rate", "40", "--seconds", "6", "--backlog", "400", "--classes", "50")
    assert (told["mix"], told["classes"], told["backlog"], len(told["trials"])) == ("real", 50, 400, 1)
    assert told["waiting_least"] > 300
    assert told["waiting"] == pytest.approx(400, abs=60)
    assert told["gpus_in_use_pct"] > 95


@pytest.mark.by_turns
def test_an_overload_is_taken_at_twice_the_rate_and_its_backlog_goes_at_half_of_it(bench: Bench) -> None:
    told = bench("overload", "--rate", "40", "--seconds", "3")
    assert (told["scheduled_per_s"], told["durable"]) == (80, True)
    assert told["offered_per_s"] > 40, "what was really handed over, on a machine that others may use"
    assert told["sender_late_ms_p99"] >= 0
    assert told["through_pct"] > 0
    assert told["recovery_s"] is not None
    assert told["started"] == told["submitted"] > 120, "none is lost, and more came than at half of the rate"
    assert [trial["per_s"] for trial in told["trials"]] == [40]
    assert told["capacity_per_s"] == (40 if told["trials"][0]["held"] else None)


@pytest.mark.by_turns
def test_without_a_rate_one_is_searched_and_nine_tenths_of_it_are_offered(bench: Bench) -> None:
    told = bench("pipeline", "--seconds", "3", "--classes", "1", nodes=2)
    held = [trial for trial in told["trials"] if trial["held"]]
    assert held, told["trials"]
    assert told["held_per_s"] == held[-1]["started_per_s"]
    assert told["offered_per_s"] == pytest.approx(0.9 * held[-1]["per_s"], rel=0.1)


@pytest.mark.by_turns
def test_in_one_run_a_secured_cell_is_measured_beside_a_plain_one_each_with_gpus_in_use_and_waits_by_class() -> None:
    for told in secured_beside("--rate", "60", "--seconds", "5", "--classes", "250"):
        assert (told["mix"], told["classes"], told["quotas"]) == ("real", 250, True)
        assert told["submitted"] == 300 == told["started"] + told["cancelled_before_start"]
        assert told["finished"] < told["started"]
        assert 20 < told["gpus_in_use_pct"] < 100
        assert {f"priority-{number}" for number in range(5)} | {"1-gpu", "gang"} <= set(told["p99_ms_by_class"])
        assert told["cpu_s_per_1000_jobs"]["placement"] > 0
        assert (told["backlog"], told["held_per_s"], told["trials"]) == (0, None, [])


def secured_beside(*load: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one run told of a plain cell and of a secured one, on a Kafka that flushes."""
    plain = told_by("pipeline", *load, "--secured", "--rounds", "1", nodes=50, redis="wheel")
    secured = plain["secured"]
    assert (plain["signed"], secured["signed"]) == (False, True)
    assert plain["durable"] is True, "of both: it is told once"
    assert (plain["security"]["kafka"], plain["security"]["redis_users"]) == ("PLAINTEXT", False)
    assert (secured["security"]["kafka"], secured["security"]["redis_users"]) == ("SASL_SSL", True)
    assert set(plain) - set(secured) >= {"secured", "compared", "rounds"}
    assert set(secured) <= set(plain)
    assert {"jobs_per_s", "p50_ms", "p99_ms", "cpu_s_per_1000_jobs", "baseline"} <= set(plain["compared"])
    assert [row["secured"] for row in plain["rounds"]] == [False, True]
    return plain, secured


@pytest.mark.by_turns
@pytest.mark.parametrize(
    "cases", [("a", "c"), ("e", "f"), ("g", "h"), ("i", "near_miss"), ("topology", "topology_none")]
)
def test_cases_of_kai_come_to_their_end_on_a_small_cell(bench: Bench, cases: tuple[str, ...]) -> None:
    told = bench("a1", *(word for case in cases for word in ("--case", case)), nodes=20)
    assert [row["case"] for row in told["rows"]] == [*cases]
    for row in told["rows"]:
        assert row["seconds"] is not None, row
        assert ("search_ms" in row) == (row["case"] == "near_miss")
        assert row["yielded"] == YIELDED.get(row["case"], 0), row
