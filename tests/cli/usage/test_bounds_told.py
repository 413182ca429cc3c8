"""The rule that a refused value breaks is told with the bound that it is beyond, and the value as it was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.cli.app import main
from fallow.shared.events.validation.rules_told import NAME_RULE

CELL_FILE = Path(__file__).parents[3] / "deploy" / "cell.yaml"
NINES = "9" * 20
DURATION = "a number of up to 9 digits and a unit: 500ms, 90s, 10min, 2h, 1d"
POINT = "a duration from now (90s, 10min, 2h, 1d; up to 9 digits) or a time in UTC, from 1974 on (2026-03-01 12:30)"
STATUSES = "'queued', 'held', 'awaiting', 'starting', 'running', 'resizing', 'stopping', 'preempted', 'finished'"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["node", "drain", "n1", "--within", f"{NINES}h"], f"--within = '{NINES}h': must be {DURATION}"),
        (["node", "maintain", "n1", "--until", f"{NINES}h"], f"--until = '{NINES}h': must be {POINT}"),
        (["quota", "set", "vision", "--min-run", f"{NINES}h"], f"--min-run = '{NINES}h': must be {DURATION}, or none"),
        (
            ["quota", "set", "vision", "--limit", NINES],
            f"--limit = '{NINES}': must be a number of GPUs of up to 12 digits, or none",
        ),
        (["log", "at", NINES], f"VERSION|TIME = '{NINES}': must be a version of up to 15 digits, a time in UTC or "),
        (
            ["log", "at", f"day {NINES}"],
            "or a time since the origin (day 3 07:15[:00], with up to 9 digits of the day)",
        ),
        (
            ["policy", "set", f"backfill_wait_ms={NINES}"],
            f"'{NINES}': must be a whole number of milliseconds of up to 19 digits, or {DURATION}",
        ),
        (
            ["policy", "set", "node_lease_wall_ms=2d"],
            "node_lease_wall_ms = '2d': 2d is 172800000 ms; must be at most 1 d (86400000 ms)",
        ),
        (
            ["policy", "set", "lease_margin_wall_ms=72000000"],
            "lease_margin_wall_ms = '72000000': must be at most 12 h (43200000 ms)",
        ),
        (["policy", "set", "start_timeout_wall_ms=0ms"], "start_timeout_wall_ms = '0ms': must be at least 1 ms"),
        (
            ["agent", "--node", "n", "--pool", "p", *(f"--label=k{number}=v" for number in range(257))],
            "--label: is given 257 times: a node has at most 256 labels",
        ),
        (["policy", "set", "reservations_max=NaN"], "reservations_max = 'NaN': must be a whole number"),
        (["policy", "set", "reservations_max=-Infinity"], "reservations_max = '-Infinity': must be a whole number"),
        (["policy", "set", "placement=\x1b[31m"], r"placement = '\x1b[31m': must be one of best-fit, binpack,"),
        (["policy", "set", "estimator=oracle"], "estimator = 'oracle': must be one of none, declared, learned"),
        (["policy", "set", "estimator=learnt"], "did you mean learned?"),
        (["quota", "set", "vi\x1b[31m", "--limit", "5", "--yes"], rf"TENANT = 'vi\x1b[31m': {NAME_RULE}"),
        (["quota", "set", "vision", "--weight", "9999999"], "--weight = '9999999': must be at most 1000000"),
        (["quota", "set", "vision", "--parent", "A b"], f"--parent = 'A b': {NAME_RULE}"),
        (["jobs", "--cell", "mian"], "--cell = 'mian': is unknown (did you mean main?): there is main"),
        (["jobs", "--status", "runing"], f"--status = 'runing': must be one of {STATUSES}, "),
    ],
    ids=lambda given: " ".join(given)[:40].replace("\x1b", "") if isinstance(given, list) else None,
)
def test_the_rule_that_a_typed_value_breaks_is_told(
    typed: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"CELL_FILE": str(CELL_FILE), "KAFKA": "127.0.0.1:1", "REDIS": "redis://127.0.0.1:1/0"}.items():
        monkeypatch.setenv(f"FALLOW_{name}", value)
    monkeypatch.setattr("sys.argv", ["fallow", *typed])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert told in said
    assert said.count("\n") == 1
