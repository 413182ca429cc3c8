"""A plain cell and a secured one are measured in turn, and what is told of both are medians."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from fallow.bench.compared import beside_secured, compared, order_of
from fallow.bench.figure import Figure
from fallow.bench.load.processor_time import Used
from fallow.bench.load.stages import chosen
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from tests.placement.worlds.world import FILE

KEYS = ("held_per_s", "jobs_per_s", "p99_ms", "cpu")
SECURITY = {"kafka": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "redis_users": True, "redis_tls": False}


def figure(jobs_per_s: float, p99_ms: float | None = 1.0, *, others: float = 0.0, durable: bool = True) -> Figure:
    body: dict[str, object] = {"jobs_per_s": jobs_per_s, "p99_ms": p99_ms, "held_per_s": None, "cpu": {"a": 1, "b": 2}}
    body |= {"security": SECURITY, "signed": True}
    return Figure("pipeline", [f"{jobs_per_s:g} jobs/s"], body, Used(1.0, {}, others), durable)


def figures(*jobs_per_s: float) -> list[Figure]:
    return [figure(each) for each in jobs_per_s]


def test_neither_cell_comes_always_first() -> None:
    assert order_of(3) == [False, True, True, False, False, True]
    assert order_of(1) == [False, True]


def test_medians_of_the_rounds_are_compared_and_an_object_by_its_sum() -> None:
    found: Any = compared(figures(100, 400, 200), figures(60, 80, 100), KEYS).body["compared"]
    assert found["jobs_per_s"] == {"plain": 200, "secured": 80, "ratio": 0.4}
    assert found["cpu"] == {"plain": 3, "secured": 3, "ratio": 1}
    assert "held_per_s" not in found, "no round tells it"


def test_the_keys_of_the_plain_cell_stay_and_are_those_of_its_middle_round() -> None:
    both = compared(figures(100, 400, 200), figures(60, 80, 100), KEYS)
    secured: Any = both.body["secured"]
    assert (both.body["jobs_per_s"], secured["jobs_per_s"]) == (200, 80)
    assert set(figure(1).body) | {"secured", "compared", "rounds"} == set(both.body)
    assert compared(figures(100, 400), figures(1, 2), KEYS).body["jobs_per_s"] == 100


def test_each_round_is_told_by_itself() -> None:
    rounds: Any = compared([figure(100), figure(90)], [figure(80, None), figure(70, others=0.4)], KEYS).body["rounds"]
    assert [(row["secured"], row["jobs_per_s"], row["p99_ms"], row["busy"]) for row in rounds] == [
        (False, 100, 1, False),
        (False, 90, 1, False),
        (True, 80, None, False),
        (True, 70, 1, True),
    ]


def test_a_wait_without_bound_is_above_all_others() -> None:
    plain, secured = [figure(1, 2.0)] * 3, [figure(1, None), figure(1, 5.0), figure(1, 3.0)]
    found: Any = compared(plain, secured, KEYS).body["compared"]
    assert found["p99_ms"] == {"plain": 2, "secured": 5, "ratio": 2.5}
    found = compared(plain, [figure(1, None)] * 2 + secured[2:], KEYS).body["compared"]
    assert found["p99_ms"] == {"plain": 2, "secured": None, "ratio": None}


def test_one_busy_round_makes_the_figure_busy_and_one_that_does_not_flush_none_that_does() -> None:
    both = compared(figures(1, 1), [figure(1, others=0.5), figure(1, durable=False)], KEYS)
    assert (both.used.others_cores, both.used.is_busy, both.durable) == (0.5, True, False)


def test_people_read_what_was_secured_and_both_with_their_ratio() -> None:
    lines = compared(figures(100), figures(80), KEYS).lines
    redis = "users, without TLS, which this server does not have"
    secured = f"Kafka: SASL_SSL by SCRAM-SHA-512 and rights; Redis: {redis}; decisions signed"
    assert lines[:4] == ["plain:", "100 jobs/s", f"secured ({secured}):", "80 jobs/s"]
    assert "jobs_per_s: plain 100.0, secured 80.0, ratio 0.8" in lines


@pytest.mark.parametrize(
    ("variable", "value"), [("FALLOW_KAFKA", "broker.example:9092"), ("FALLOW_REDIS", "redis://:word@127.0.0.1:6379/0")]
)
def test_servers_that_run_are_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, value: str
) -> None:
    monkeypatch.setenv("FALLOW_KAFKA", "jars")
    monkeypatch.delenv("FALLOW_REDIS", raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(typer.Exit) as ended:
        beside_secured(Console(), lambda _: figure(1), KEYS, 1)
    said = capsys.readouterr().err
    assert ended.value.exit_code == 2
    assert variable in said
    assert "unset it" in said
    assert "word" not in said


def test_both_cells_get_servers_of_the_same_programs_and_no_secret_of_another_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FALLOW_KAFKA", "")
    monkeypatch.setenv("FALLOW_REDIS", "wheel")
    secrets = ("FALLOW_KAFKA_USERNAME", "FALLOW_KAFKA_SECURITY", "FALLOW_SECRETS_DIR", "FALLOW_SIGNING_KEY")
    for name in secrets:
        monkeypatch.setenv(name, "of another cell")
    measured = list[bool]()

    def measure(secured: bool) -> Figure:
        measured.append(secured)
        return figure(1)

    beside_secured(Console(file=StringIO()), measure, KEYS, 2)
    assert measured == [False, True, True, False]
    assert (os.environ["FALLOW_KAFKA"], os.environ["FALLOW_REDIS"]) == ("jars", "wheel")
    assert [name for name in secrets if name in os.environ] == []


@pytest.mark.parametrize(("secured", "quick"), [(False, False), (True, False), (None, True)])
def test_both_cells_have_a_kafka_that_compiles_as_one_that_serves_for_long_and_one_is_signed_from_its_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool | None, quick: bool
) -> None:
    """Java's quick compiler does not use the processor's instructions for AES. A cell that is measured alone has a
    Kafka as `fallow up` starts it.
    """
    monkeypatch.setenv("FALLOW_KAFKA", "jars")
    try:
        kafka, _, security = chosen(tmp_path, durable=False, secured=secured)
    except StackError as error:
        pytest.skip(str(error))
    assert isinstance(kafka.server, KafkaFromJars)
    assert kafka.server.quick_start is quick
    if security is not None:
        assert [cell.signing and cell.signing.from_version for cell in security.signed(FILE).cells] == [1]
