"""Conformance cases: read strictly, played on the real services, judged key by key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.replay.workload import WorkloadError
from fallow.services.placement.policy.policies import POLICIES
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import CellPolicy
from fallow.simulate.case import read_case
from fallow.simulator.cases.expectations import AT_THE_END, JUDGES
from fallow.simulator.cases.names import Names
from fallow.simulator.cases.run import CaseRun
from fallow.simulator.cases.schema import CaseError, Expect, case_of
from fallow.simulator.cases.setting import Setting
from tests.simulator.cases.small_cases import LINE, line, verdict

RUN = CliRunner()
FOLDER = os.environ.get("FALLOW_CASES", "")
CASES = sorted(Path(FOLDER).glob("*.yaml")) if FOLDER else []
RULES = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
NEEDS_CASES = pytest.mark.skipif(not CASES, reason="FALLOW_CASES names no folder of conformance cases")


def test_a_case_passes_when_everything_is_as_expected() -> None:
    assert verdict(line()).differences == ()


@pytest.mark.parametrize("seed", range(10))
def test_no_verdict_hangs_on_names_or_on_the_order_of_rows(seed: int) -> None:
    assert verdict(line(), seed).differences == ()


def test_a_difference_is_told_in_the_words_of_the_case() -> None:
    told = verdict(line(expect={"running": {"big": ["n0", "n1"]}, "pending": ["r"]}, then=[]), seed=3)
    assert told.differences == (
        "running: expected big on n0, n1, found r on n0",
        "pending: expected r, found big, small",
    )


def test_nodes_that_are_alike_may_stand_for_each_other() -> None:
    nodes = {"nodes": [{"name": name, "gpus": 8} for name in ("n0", "n1", "n2")]}
    job = {"job": "j", "queue": "q", "tasks": 1, "gpus_per_task": 8}
    for node in ("n0", "n1", "n2"):
        case = line(cluster=nodes, running=[], pending=[job], expect={"running": {"j": [node]}}, then=[])
        assert verdict(case).passed


def test_nodes_that_differ_may_not() -> None:
    nodes = {"nodes": [{"name": "n0", "gpus": 8}, {"name": "n1", "gpus": 4}]}
    job = {"job": "j", "queue": "q", "tasks": 1, "gpus_per_task": 8}
    case = line(cluster=nodes, running=[], pending=[job], expect={"running": {"j": ["n1"]}}, then=[])
    assert verdict(case).differences == ("running: expected j on n1, found j on n0",)


def test_a_job_that_must_be_in_one_rack_is_told_how_much_of_it_fits_in_which_and_nothing_in_all() -> None:
    racks = {"a0": "a", "a1": "a", "a2": "a", "a3": "a", "b0": "b", "b1": "b", "b2": "b", "b3": "b"}
    nodes = {"nodes": [{"name": name, "gpus": 8, "labels": {"rack": rack}} for name, rack in racks.items()]}
    running = [
        {"job": f"r-{name}", "queue": "q", "tasks": 1, "gpus_per_task": 8, "nodes": [name]}
        for name in ("a1", "b0", "b2")
    ]
    job = {"job": "j", "queue": "q", "tasks": 4, "gpus_per_task": 8, "min_tasks": 4, "topology": {"required": "rack"}}
    expect = {
        "pending": ["j"],
        "reason_code": "topology",
        "reason_contains": "can place 3 of 4 in rack a, 2 of 4 in rack b",
    }
    case = line(cluster=nodes, running=running, pending=[job], expect=expect, then=[])
    assert [verdict(case, seed).differences for seed in (None, 1, 2)] == [(), (), ()]


def test_gpus_that_are_idle_on_a_cordoned_node_are_named_as_such() -> None:
    expect = {"pending": ["big"], "reason_contains": "4 more are idle on nodes cordoned"}
    then = [{"do": [{"node": "n0", "state": "cordoned"}], "expect": expect}]
    assert verdict(line(then=then)).differences == ()


def test_a_job_that_can_never_run_waits_with_admissions_reason() -> None:
    job = {"job": "j", "queue": "q", "tasks": 3, "gpus_per_task": 8}
    expect = {"pending": ["j"], "reason_code": "exceeds_max_quota", "reason_contains": "can place 2 of 3"}
    assert verdict(line(running=[], pending=[job], expect=expect, then=[])).passed


@pytest.mark.parametrize(
    ("do", "expect"),
    [
        ([{"node": "n0", "state": "down"}], {"running": {"r": ["n1"], "small": ["n1"]}, "evicted_tasks": 1}),
        ([{"node": "n0", "state": "down"}, {"finish": "r"}], {"running": {"small": ["n1"]}, "pending": ["big"]}),
        (
            [{"node": "n0", "state": "down"}, {"finish": "r"}, {"finish": "small"}, {"node": "n0", "state": "up"}],
            {"running": {"big": ["n0", "n1"]}, "retries": {"big": 0}},
        ),
        ([{"node": "n1", "state": "cordoned"}, {"finish": "r"}], {"running": {"small": ["n0"]}, "pending": ["big"]}),
        ([{"set_queue": "q", "quota": 8}, {"round": True}], {"running_count": {"q": 1}}),
        ([{"delete": "r", "release": "lost_then_twice"}], {"deleted": ["r"], "running": {"big": ["n0", "n1"]}}),
        (
            [{"restart_services": True, "redeliver_s": 60}],
            {"running_tasks": {"r": 1}, "started": [], "duplicate_allocations": 0, "view_equals_running": True},
        ),
        (
            [{"submit": {"prefix": "s", "count": 3, "queue": "q", "gpus_per_task": 1}}],
            {"pending_count": {"q": 5}, "started": []},
        ),
        ([{"restart_case": True, "set_running": {"q": 0}}], {"running": {"big": ["n0", "n1"]}}),
    ],
)
def test_things_happen_as_the_case_says(do: list[dict[str, Any]], expect: dict[str, Any]) -> None:
    assert verdict(line(then=[{"event": "it happens", "do": do, "expect": expect}])).differences == ()


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_rule_of_ours_holds_whatever_the_names_and_the_order_of_rows(path: Path) -> None:
    case = read_case(path)
    assert {seed: verdict(case, seed).differences for seed in (None, 1, 2, 3)} == dict.fromkeys((None, 1, 2, 3), ())


class PlacedBy(Setting):
    """A case under another placement policy: no key of a case names one."""

    placement = ""

    def _policy(self) -> CellPolicy:
        return replace(super()._policy(), placement=self.placement)


@pytest.mark.parametrize("placement", POLICIES)
@pytest.mark.parametrize("path", [*RULES, *CASES], ids=lambda path: path.stem)
def test_names_and_the_order_of_rows_change_no_verdict_under_any_placement_policy(path: Path, placement: str) -> None:
    kind, case = type("Placed", (PlacedBy,), {"placement": placement}), read_case(path)
    runs = [CaseRun(case, None if seed is None else Random(seed), setting=kind) for seed in (None, 1, 2, 3)]
    assert len({run.run().passed for run in runs}) == 1


def test_what_a_case_sets_and_nothing_goes_by_is_told_though_it_passes() -> None:
    told = verdict(
        line(
            queues=[{"name": "q", "quota": 16, "guarantee": 2, "owner_of": "x"}],
            cluster={"nodes": [{"name": "n0", "gpus": 8, "last_heartbeat_s_ago": 5}, {"name": "n1", "gpus": 8}]},
            policy={"queue_policy": "strict_fifo", "consolidation": True},
        )
    )
    keys = ("consolidation", "guarantee", "owner_of", "last_heartbeat_s_ago")
    assert (told.differences, told.remarks) == ((), tuple(f"{key} is not gone by" for key in keys))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({}, "says nothing"),
        ({"node": "n0"}, "`node` says nothing without `state`"),
        ({"state": "up"}, "`state` says nothing without `node`"),
        ({"set_queue": "q"}, "`set_queue` says nothing without `quota` or `reclaim`"),
        ({"quota": 3}, "`quota` says nothing without `set_queue`"),
        ({"every_s": 3, "round": True}, "`every_s` says nothing without `submit`"),
        ({"set_running": {"q": 0}}, "`set_running` says nothing without `restart_case`"),
        ({"slow_load": True}, "`slow_load` says nothing without `restart_services`"),
        ({"delete": "r"}, "`delete` says nothing without `release`"),
    ],
)
def test_a_step_that_would_do_nothing_is_an_error(step: dict[str, Any], said: str) -> None:
    with pytest.raises(CaseError, match=said):
        line(then=[{"event": "x", "do": [step]}])


def test_what_the_product_cannot_be_asked_fails_in_words() -> None:
    expect = {"reason_domains": ["n0"]}
    told = verdict(line(expect=expect, then=[]))
    assert told.differences == ("reason_domains: the product cannot be asked about it",)


def test_a_setting_that_cannot_be_made_fails_in_words_and_never_crashes() -> None:
    told = verdict(line(then=[{"event": "x", "do": [{"set_policy": {"consolidation": True}}]}]))
    assert told.differences == ("consolidation cannot be set while the cell runs",)


def test_a_judge_knows_only_keys_of_the_schema() -> None:
    assert {*JUDGES, *AT_THE_END} <= set(Expect.model_fields)


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ((), "expects"),
        (("cluster",), "node"),
        (("cluster", "nodes", 0), "gpu"),
        (("queues", 0), "quotas"),
        (("running", 0), "node"),
        (("pending", 0), "nodes"),
        (("policy",), "queue"),
        (("expect",), "runing"),
        (("then", 0), "expected"),
        (("then", 0, "do", 0), "advance"),
        (("then", 0, "expect"), "pendings"),
    ],
)
def test_an_unknown_key_anywhere_is_an_error_that_names_it(where: tuple[str | int, ...], key: str) -> None:
    content = json.loads(json.dumps(LINE))
    part = content
    for step in where:
        part = part[step]
    part[key] = 1
    with pytest.raises(CaseError, match=rf"line\.yaml: .*\b{key}: is no key of a case"):
        case_of(content, "line.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [\n", "line 2: not YAML: expected the node content, but found '<stream end>'"),
        ("name: a\nname: b\n", "line 2: name: the key stands in line 1 already"),
        ("name: 1:30\n", "line 1: 1:30: a number has no colons; put text in quotes"),
    ],
)
def test_a_text_that_cannot_be_read_is_one_line_with_file_and_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError) as refused:
        read_case(path)
    assert str(refused.value) == f"{path}: {said}"


def test_a_line_break_in_a_key_is_shown_and_not_done() -> None:
    with pytest.raises(CaseError) as refused:
        case_of({**LINE, "a\nb": 1}, "line.yaml")
    assert str(refused.value) == r"line.yaml: a\nb: is no key of a case"


def test_a_device_is_no_case() -> None:
    with pytest.raises(WorkloadError, match=r"^/dev/zero: cannot be read: must be a regular file or a pipe$"):
        read_case(Path("/dev/zero"))


def test_a_queue_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CaseError, match="queue 'other' is not in this case"):
        line(pending=[{"job": "j", "queue": "other"}])


@pytest.mark.parametrize(
    ("key", "said"),
    [("cluster", "node 'n0' stands twice"), ("queues", "queue 'q' stands twice"), ("pending", "job 'r' stands twice")],
)
def test_two_rows_of_one_name_are_an_error(key: str, said: str) -> None:
    twice = {
        "cluster": {"nodes": [*LINE["cluster"]["nodes"], {"name": "n0", "gpus": 2}]},
        "queues": [*LINE["queues"], {"name": "q", "quota": 1}],
        "pending": [*LINE["pending"], {"job": "r", "queue": "q"}],
    }
    with pytest.raises(CaseError, match=said):
        line(**{key: twice[key]})


def test_names_lead_both_ways() -> None:
    names = Names(None)
    assert names.outside(names.inside("job", "A")) == "A"
    assert names.in_words(f"{names.inside('node', 'n7')} is full") == "n7 is full"


def test_a_job_has_one_name_outside_and_inside_its_queue_before_it() -> None:
    names = Names(None)
    known = names.job_of("q", "A")
    assert known == f"{names.inside('queue', 'q')}/job-0000"
    assert names.inside("job", "A") == known
    assert names.outside(known) == "A"
    assert names.in_words(f"job {known} of {names.inside('queue', 'q')}") == "job A of q"


def test_the_command_counts_and_ends_with_1_on_a_failure(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(yaml.safe_dump(LINE), encoding="utf-8")
    bad.write_text(yaml.safe_dump({**LINE, "name": "wrong", "expect": {"pending": []}}), encoding="utf-8")
    done = RUN.invoke(app, ["case", str(good), str(bad), "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"passed": 1, "failed": 1, "failed_names": ["wrong"], "remarks": {}}
    assert RUN.invoke(app, ["case", str(good), "--permute", "5"]).exit_code == 0


PASSING = frozenset(
    {
        "gang-all-or-nothing",
        "gang-over-two-nodes",
        "gang-no-head-of-line-block",
        "strict-fifo-head-blocks",
        "preempt-none-when-not-enough",
        "preempt-never-equal-or-higher",
        "reclaim-none-within-deserved",
        "reclaim-not-from-protected-queue",
        "reclaim-stops-at-guarantee",
        "fair-no-imbalance-switch",
        "fair-no-preempt-that-does-not-help",
        "consolidate-not-nonpreemptible",
        "binpack-keeps-node-free",
        "binpack-least-free-domain",
        "topology-preferred-falls-back",
        "topology-largest-domain-tiebreak",
        "topology-preemption-respects-domain",
        "backfill-off-is-strict",
        "loan-borrower-never-evicts-owner",
        "loan-guaranteed-stays-in-quota",
        "bad-node-then-back",
        "restart-two-gangs",
        "no-ghost-allocation",
        "gang-member-invalid-takes-all",
        "reclaim-near-miss-fails-fast",
    }
)
"""Cases that pass; others may."""


@NEEDS_CASES
@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_conformance_case_has_one_verdict_under_any_names_and_never_crashes(path: Path) -> None:
    case = read_case(path)
    told = verdict(case)
    assert not [text for text in told.differences if "raised" in text]
    assert told.passed or case.name not in PASSING
    assert [verdict(case, seed).passed for seed in (1, 2, 3)] == [told.passed] * 3
