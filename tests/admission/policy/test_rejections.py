"""Each reason to turn a command away: the code, the field, the value, the rule, and the numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.policy.resolve import Rejection, home_of, tenant_of
from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.capacity.gang_bytes import GANG_BYTES_MAX, fewest_bytes, max_workers
from fallow.shared.cluster.model.config import CellFile, CellPart, Limits, Pool, Tenant
from fallow.shared.events.base import TEXT_CHARACTERS_MAX
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.values import WORKERS_MAX, JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.validation.rules_told import LABEL_RULE, LINE_RULE, NAME_RULE
from tests.admission.commands import CANCEL, FILE, NOW_MS, SUBMIT, UPDATE, answer, bytes_of, rejected, submit
from tests.hypothesis_profile import reaches

Numbers = tuple[int | None, int | None]
NONE: Numbers = (None, None)
SEVERAL = "pools_in_several_cells"
TEN = {"gpu_milli": 10_000}
OLD = bytes_of({"job": {"id": "job-1", "tenant": "ada"}, "submit_ms": NOW_MS - 60_001})
FAR = submit(not_before_ms=3_600_000_000)
EARLY = bytes_of({"job": {"id": "job-1", "tenant": "ada"}, "submit_ms": NOW_MS + 60_001})


@pytest.mark.parametrize(
    ("command", "code", "field", "value", "rule", "numbers"),
    [
        (submit(tenant="eve"), "unknown_tenant", "tenant", "eve", "is not in the cell file (there are ", NONE),
        (submit(pools=["h100", "x"]), "unknown_pool", "pools", "x", "is not a pool of the cell file (there are ", NONE),
        (
            submit(cell="north"),
            "unknown_cell",
            "cell",
            "north",
            "is not a cell of the cell file (there",
            NONE,
        ),
        (submit(queue="fast"), "unknown_queue", "queue", "fast", "not a queue of cell east (there ", NONE),
        (
            submit(gpu_type="b200"),
            "unknown_gpu_type",
            "gpu_type",
            "b200",
            "may use in cell east (there ",
            NONE,
        ),
        (submit(gpu_type="a100", pools=["h100"]), "unknown_gpu_type", "gpu_type", "a100", "none of the pools", NONE),
        (submit(tenant="any"), "cell_needed", "cell", "", "must be named", NONE),
        (submit(pools=["west-h100"]), "pool_not_allowed", "pools", "west-h100", "not open to tenant ada", NONE),
        (submit(cell="west"), "pool_not_allowed", "cell", "west", "no pool that is open to tenant ada", NONE),
        (
            submit(tenant="any", pools=["a100", "west-h100"]),
            "pools_in_several_cells",
            "pools",
            "a100",
            "one cell",
            NONE,
        ),
        (
            submit(tenant="any", cell="west", pools=["a100"]),
            "pools_in_several_cells",
            "pools",
            "a100",
            "one cell",
            NONE,
        ),
        (
            submit(resources=TEN),
            "larger_than_pool",
            "resources.gpu_milli",
            "10000",
            "(gpu_milli 8000)",
            (10, 8),
        ),
        (submit(workers=21, pools=["a100"]), "larger_than_pool", "workers", "21", "holds 20", (21, 20)),
        (
            submit(workers=6, resources={"gpu_milli": 5_000}, pools=["a100"]),
            *("larger_than_pool", "workers", "6", "holds 2", (6, 2)),
        ),
        (
            submit(workers=81, resources={"gpu_milli": 250}, pools=["a100"]),
            *("larger_than_pool", "workers", "81", "holds 80", (81, 80)),
        ),
        (submit(tenant="bob", workers=17, pools=["h100"]), "over_tenant_limit", "workers", "17", "use 16", (17, 16)),
        (submit(tenant="bob", workers=20), "over_tenant_limit", "workers", "20", "use 16", (20, 16)),
        (submit(workers=101), "over_job_limit", "workers", "101", "may have 100", (101, 100)),
        (
            submit(workers=31, resources={"gpu_milli": 2_000}),
            *(
                "over_job_limit",
                "resources.gpu_milli",
                "2000",
                "62 GPUs in all its workers, a job may have 60",
                (62, 60),
            ),
        ),
        (submit(retry={"budget": 6}), "over_job_limit", "retry.budget", "6", "may have 5", (6, 5)),
        (
            submit(queue="short", max_run_ms=5_001),
            *("over_job_limit", "max_run_ms", "5001", "queue short lets a job run for 5000 ms at most", (5_001, 5_000)),
        ),
        (submit(tenant="quin", priority=6, cell="west"), "over_tenant_limit", "priority", "6", "tenant quin", (6, 5)),
        (OLD, "submit_time_too_far", "submit_ms", "999939999", "within 60000 ms", (60_001, 60_000)),
        (EARLY, "submit_time_too_far", "submit_ms", "1000060001", "within 60000 ms", (60_001, 60_000)),
        (FAR, "not_before_too_far", "not_before_ms", "3600000000", "ms ahead", (2_600_000_000, 2_592_000_000)),
        (submit(array=0), "invalid_field", "array", "0", "at least 1", NONE),
        (submit(array_max_running=2), "invalid_field", "array_max_running", "2", "is for arrays", NONE),
        (submit(array_of="x"), "invalid_field", "array_of", "x", "set by the cell", NONE),
        (submit(array_index=1), "invalid_field", "array_index", "1", "set by the cell", NONE),
        (submit(after=[{"job": "job-1"}]), "invalid_field", "after", "job-1", "the job itself", NONE),
        (submit(after=[{"job": "a"}, {"job": "a", "when": "any"}]), "invalid_field", "after", "a", "twice", NONE),
        (submit(workers=2, workers_min=1), "unsupported", "workers_min", "", "not supported", NONE),
        (submit(scaling=[1_000, 1_900]), "unsupported", "scaling", "", "not supported", NONE),
        (submit(fungible=True), "unsupported", "fungible", "", "not supported", NONE),
        (submit(heterogeneous=True), "unsupported", "heterogeneous", "", "not supported", NONE),
        (submit(spread="leaf"), "unsupported", "spread", "", "not supported", NONE),
        (
            submit(workers=2, gang=False, topology={"level": "leaf"}),
            *("unsupported", "topology", "", "not supported", NONE),
        ),
        (
            submit(run={"driver": "process", "argv": ["x"]}),
            *("unsupported", "run.driver", "process", "not supported by any pool", NONE),
        ),
        (submit(tenant="pia"), "unsupported", "run.driver", "virtual", "not supported by any pool", NONE),
        (submit(workers=0), "invalid_field", "workers", "0", "at least 1", NONE),
        (submit(workers="2"), "invalid_field", "workers", "2", "whole number", NONE),
        (submit(worker=2), "invalid_field", "worker", "2", "unknown field", NONE),
        (submit(retry={"bugdet": 2}), "invalid_field", "retry.bugdet", "2", "unknown field", NONE),
        (
            submit(resources={"gpu_milli": 1_500}),
            *("invalid_field", "resources.gpu_milli", "1500", "above 1000 must be a multiple of 1000", NONE),
        ),
        (submit(more="x" * 512_000), "too_large", "", "5120", "at most 512000 bytes", NONE),
        (
            submit(workers=1, workers_min=2),
            *("invalid_field", "workers_min", "2", "must be at most workers, which is 1", NONE),
        ),
    ],
)
def test_a_submit_is_turned_away_with_field_value_rule_and_numbers(
    command: bytes, code: str, field: str, value: str, rule: str, numbers: Numbers
) -> None:
    found = rejected(command)
    assert (found.code, found.field, (found.wanted, found.allowed)) == (RejectCode(code), field, numbers)
    assert found.value.startswith(value)
    assert rule in found.rule
    assert (found.job, found.command) == (f"{found.tenant}/job-1", "submit")


def test_a_value_that_is_turned_away_is_told_as_it_was_written() -> None:
    """In the unit of its field: `gpu_milli: 16000` is not `gpu_milli 16`."""
    for mark in _marks():
        for command, _, field, *_ in mark.args[1]:
            if field == "resources.gpu_milli":
                assert rejected(command).value == str(json.loads(command)["job"]["resources"]["gpu_milli"])


def test_every_code_has_a_row_here() -> None:
    rows = {mark.args[1][row][1] for mark in _marks() for row in range(len(mark.args[1]))}
    assert {code.value for code in RejectCode} - rows == {
        "tenant_not_of_topic",
        "too_many_submissions",
        "unknown_version",
    }


def _marks() -> list[Any]:
    return list(test_a_submit_is_turned_away_with_field_value_rule_and_numbers.pytestmark)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("type_", "command", "code"),
    [
        (CANCEL, {"job": "job-1", "tenant": "eve"}, RejectCode.UNKNOWN_TENANT),
        (CANCEL, {"job": "job-1", "tenant": "eve", "cell": "north"}, RejectCode.UNKNOWN_CELL),
        (CANCEL, {"job": "ada/job-1", "tenant": "eve", "cell": "east"}, RejectCode.INVALID_FIELD),
        (CANCEL, {"job": "job-1", "tenant": "any"}, RejectCode.CELL_NEEDED),
        (CANCEL, {"job": "job-1", "tenant": "ada", "cell": "north"}, RejectCode.UNKNOWN_CELL),
        (CANCEL, {"job": "job-1", "tenant": "ada", "why": "x"}, RejectCode.INVALID_FIELD),
        (UPDATE, {"job": "job-1", "tenant": "ada", "changes": {}}, RejectCode.INVALID_FIELD),
        (UPDATE, {"job": "job-1", "tenant": "ada"}, RejectCode.INVALID_FIELD),
        (UPDATE, {"job": "job-1", "tenant": "ada", "changes": {"priority": 1, "id": "x"}}, RejectCode.INVALID_FIELD),
        (UPDATE, {"job": "job-1", "tenant": "eve", "changes": {"priority": 1}}, RejectCode.UNKNOWN_TENANT),
        (
            UPDATE,
            {"job": "job-1", "tenant": "bob", "cell": "east", "changes": {"workers": 101}},
            RejectCode.OVER_JOB_LIMIT,
        ),
        (
            UPDATE,
            {"job": "job-1", "tenant": "quin", "cell": "west", "changes": {"priority": 6}},
            RejectCode.OVER_TENANT_LIMIT,
        ),
    ],
)
def test_a_cancel_or_update_is_turned_away(type_: str, command: dict[str, Any], code: RejectCode) -> None:
    found = rejected(bytes_of(command), type_)
    assert (found.code, found.tenant) == (code, command["tenant"])
    assert found.job == full_id(command["tenant"], command["job"])


def test_who_may_have_jobs_left_in_several_cells_is_told_to_name_the_cell() -> None:
    found = rejected(bytes_of({"job": "job-1", "tenant": "eve"}), CANCEL)
    assert found.rule.endswith("; to cancel a job of it, name the cell of the job")


@pytest.mark.parametrize("topic_tenant", [None, "eve"])
@pytest.mark.parametrize("job", ["job-1", "eve/job-1", "many.3"])
def test_a_cancel_of_a_tenant_that_the_file_does_not_name_goes_on_to_the_cell_that_it_names(
    job: str, topic_tenant: str | None
) -> None:
    """A tenant that is taken out of the file has jobs left."""
    found = answer(bytes_of({"job": job, "tenant": "eve", "cell": "west"}), CANCEL, topic_tenant)
    assert found == JobCancelRequested(cell="west", job=full_id("eve", job), tenant="eve")


def test_a_cancel_of_such_a_tenant_goes_on_where_there_is_one_cell() -> None:
    service = AdmissionService(FILE.model_copy(update={"cells": FILE.cells[:1]}))
    found = service.answer(CANCEL, bytes_of({"job": "job-1", "tenant": "eve"}), None, NOW_MS)
    assert found == JobCancelRequested(cell="east", job="eve/job-1", tenant="eve")


@pytest.mark.parametrize(
    ("type_", "command"),
    [
        ("fallow.job.submit.v1", {"job": {"id": "job-1", "tenant": "ada"}}),
        (CANCEL, {"job": "job-1", "tenant": "ada"}),
        (UPDATE, {"job": "job-1", "tenant": "ada", "changes": {"priority": 1}}),
    ],
)
def test_a_tenants_own_topic_speaks_for_nobody_else(type_: str, command: dict[str, Any]) -> None:
    found = rejected(bytes_of(command), type_, topic_tenant="bob")
    assert (found.code, found.field, found.value) == (RejectCode.TENANT_NOT_OF_TOPIC, "tenant", "ada")
    assert "bob" in found.rule


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (SUBMIT, bytes_of({"job": {"id": "job-1", "tenant": "ada"}})),
        (CANCEL, bytes_of({"job": "job-1", "tenant": "ada"})),
        (SUBMIT, b'{"job":{"id":"job-1","tenant":"ada","workers":"many"}}'),
        ("fallow.job.submit.v9", bytes_of({"job": {"id": "job-1", "tenant": "ada"}})),
        (UPDATE, b'{"job":"job-1","tenant":"ada","tenant":"ada","changes":{"priority":1}}'),
    ],
)
def test_whatever_is_wrong_with_what_comes_by_a_tenants_own_topic_the_no_is_told_to_that_tenant(
    type_: str, value: bytes
) -> None:
    assert rejected(value, type_, topic_tenant="bob").tenant == "bob"


def test_an_array_whose_elements_would_have_too_long_ids_is_turned_away_and_no_shorter_one() -> None:
    for elements, longest in ((3, 126), (10, 126), (11, 125), (101, 124)):
        fits, too_long = (submit(id="x" * size, array=elements) for size in (longest, longest + 1))
        assert isinstance(answer(fits), JobAdmitted)
        found = rejected(too_long)
        assert (found.field, found.wanted, found.allowed) == ("id", longest + 1, longest)


def test_a_rejection_can_be_written_whatever_the_command_holds() -> None:
    found = rejected(submit(**{"x" * 400_000: 1}))
    assert (found.code, len(found.field)) == (RejectCode.INVALID_FIELD, 96)
    assert len(rejected(submit(queue="y" * 400_000)).value) == 100


def test_a_gang_that_no_record_could_hold_is_turned_away_with_the_figure() -> None:
    pools = (Pool(name="vast", gpus=1_000_000), Pool(name="narrow", gpus=1_000_000, gpus_per_node=2))
    file = CellFile(
        cells=(CellPart(name="east", ordinal=0, pools=pools),),
        tenants=(Tenant(name="ada"),),
        limits=Limits(workers_per_job=WORKERS_MAX),
    )
    most = max_workers(1_000, 8)
    service = AdmissionService(file)
    for workers, gang in ((most, True), (WORKERS_MAX, False)):
        command = bytes_of({"job": {"id": "a", "tenant": "ada", "workers": workers, "workers_min": 1, "gang": gang}})
        if gang:
            command = bytes_of({"job": {"id": "a", "tenant": "ada", "workers": workers}})
        assert isinstance(service.answer(SUBMIT, command, None, NOW_MS), JobAdmitted)
    answer = service.answer(SUBMIT, bytes_of({"job": {"id": "a", "tenant": "ada", "workers": most + 1}}), None, NOW_MS)
    assert isinstance(answer, JobRejected)
    assert (answer.code, answer.field, answer.value) == (RejectCode.TOO_LARGE, "workers", str(most + 1))
    assert (answer.wanted, answer.allowed) == (most + 1, most)
    needed = fewest_bytes(most + 1, 1_000, 8)
    assert answer.rule == f"their places need {needed} bytes at least, the record in which they start takes 950000"
    assert needed > GANG_BYTES_MAX
    in_narrow = {"id": "a", "tenant": "ada", "workers": most, "pools": ["narrow"]}
    answer = service.answer(SUBMIT, bytes_of({"job": in_narrow}), None, NOW_MS)
    assert isinstance(answer, JobRejected)
    assert (answer.code, answer.wanted, answer.allowed) == (RejectCode.TOO_LARGE, most, max_workers(1_000, 2))


VARIABLE_RULE = "the name of a variable must have a character, and neither '=' nor a control character"
HANDED_RULE = "must hold no control characters but tab and newline"


@pytest.mark.parametrize(
    ("run", "field", "rule"),
    [
        ({"argv": ["true", "a\0b"]}, "run.argv[1]", HANDED_RULE),
        ({"argv": ["true"], "env": {"A": "\0"}}, "run.env.A", HANDED_RULE),
        ({"argv": ["true"], "dir": "/tmp/a\0b"}, "run.dir", LINE_RULE),
        ({"argv": ["true"], "checkpoint_dir": "/tmp/a\0b"}, "run.checkpoint_dir", LINE_RULE),
        ({"argv": ["true"], "env": {"A\0": "b"}}, "run.env", VARIABLE_RULE),
        ({"argv": ["true"], "env": {"A=B": "b"}}, "run.env", VARIABLE_RULE),
        ({"argv": ["true"], "env": {"": "b"}}, "run.env", VARIABLE_RULE),
        ({"argv": ["", "a"]}, "run.argv[0]", "must name a program"),
    ],
)
def test_what_no_process_can_be_started_with_is_refused(run: dict[str, Any], field: str, rule: str) -> None:
    found = rejected(submit(run={"driver": "process", **run}))
    assert (found.code, found.field, found.rule) == (RejectCode.INVALID_FIELD, field, rule)


def test_of_many_names_as_many_are_told_as_a_record_holds() -> None:
    part = CellPart(name="main", ordinal=0, pools=(Pool(name="train", gpus=8),))
    many = CellFile(cells=(part,), tenants=tuple(Tenant(name=f"{'t' * 55}-{number}") for number in range(500)))
    found = tenant_of(many, "eve")
    assert isinstance(found, Rejection)
    assert found.rule.endswith(" and 497 more)")
    assert len(found.rule) < TEXT_CHARACTERS_MAX


def test_the_gpu_types_that_are_told_are_those_of_the_pools_that_the_job_may_use_each_once() -> None:
    types = {"open-1": "h100", "open-2": "h100", "open-3": "a100", "closed": "b200"}
    pools = tuple(Pool(name=name, gpus=8, gpu_type=kind) for name, kind in types.items())
    tenant = Tenant(name="ada", pools=("open-1", "open-2", "open-3"))
    file = CellFile(cells=(CellPart(name="main", ordinal=0, pools=pools),), tenants=(tenant,))
    found = home_of(file, tenant, JobSpec(id="job", tenant="ada", gpu_type="l40"))
    assert isinstance(found, Rejection)
    assert found.rule.endswith(" (there are h100, a100)")


def test_a_gpu_type_where_a_pool_belongs_and_a_pool_where_a_gpu_type_does_are_told() -> None:
    pools = (Pool(name="main-training", gpus=8, gpu_type="gpu"), Pool(name="spare", gpus=8, gpu_type="h100"))
    tenant = Tenant(name="ada")
    file = CellFile(cells=(CellPart(name="main", ordinal=0, pools=pools),), tenants=(tenant,))
    found = home_of(file, tenant, JobSpec(id="job", tenant="ada", pools=("gpu",)))
    assert isinstance(found, Rejection)
    told = "is not a pool of the cell file (gpu is a GPU type: gpu_type; there are main-training, spare)"
    assert (found.field, found.value, found.rule) == ("pools", "gpu", told)
    found = home_of(file, tenant, JobSpec(id="job", tenant="ada", gpu_type="spare"))
    assert isinstance(found, Rejection)
    assert (found.field, found.value) == ("gpu_type", "spare")
    assert found.rule.endswith(" (spare is a pool: pools; there are gpu, h100)")


ONE_GPU, LISTS_ALL = "1000 is one GPU", "docs/reference/job-fields.md lists all"


@pytest.mark.parametrize(
    ("field", "name", "rule"),
    [
        ({"run": {"driver": "process", "argv": ["a\0b"]}}, "run.argv[0]", HANDED_RULE),
        ({"run": {"driver": "virtual", "duration_ms": -1}}, "run.duration_ms", "must be at least 0"),
        ({"run": {"driver": "nothing"}}, "run.driver", "must be 'virtual' or 'process'"),
        ({"node_labels": [f"a=x{n}" for n in range(40)]}, "node_labels", "must have at most 32 items"),
        ({"tolerations": ["a b"]}, "tolerations[0]", LABEL_RULE),
        ({"queue": "a b"}, "queue", NAME_RULE),
        ({"node_labels": ["a b"]}, "node_labels[0]", "must be KEY=A, KEY=A|B, KEY!=A, KEY or !KEY, without spaces"),
        ({"colour": 1}, "colour", "unknown field (docs/reference/job-fields.md lists them)"),
        ({"gpus": 1}, "gpus", f"unknown field (did you mean resources.gpu_milli? {ONE_GPU}; {LISTS_ALL})"),
        (
            {"resources": {"gpus": 1}},
            "resources.gpus",
            f"unknown field (did you mean gpu_milli? {ONE_GPU}; {LISTS_ALL})",
        ),
        ({"max_run_ms": 1.5}, "max_run_ms", "must be a whole number of milliseconds"),
        ({"max_run_ms": "24h"}, "max_run_ms", "must be a whole number of milliseconds"),
        ({"resources": {"gpu_milli": 0.5}}, "resources.gpu_milli", "must be a whole number of thousandths of a GPU"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_a_job_file(field: dict[str, Any], name: str, rule: str) -> None:
    found = rejected(submit(**field))
    assert (found.field, found.rule) == (name, rule)


ODD_VALUES = st.one_of(
    st.sampled_from([None, True, -1, 0, 1.5, 2**70, "", "a b", "n\0", [], {}, [1], ["a b"], {"driver": "x"}, {"": ""}]),
    st.builds(lambda count: ["x"] * count, st.integers(0, 2_000)),
    st.builds(lambda name: {"driver": name}, st.sampled_from(["process", "virtual", ""])),
    st.text(max_size=5),
)

NOT_OURS = ("Input should", "Extra inputs", "String should", "Tuple should", "Value error", "^(?", "after validation")


@given(st.dictionaries(st.sampled_from(sorted(JobSpec.__struct_fields__)), ODD_VALUES, min_size=1, max_size=3))
def test_whatever_a_command_holds_no_rule_is_told_in_words_of_the_checker(fields: dict[str, Any]) -> None:
    found = answer(submit(**fields))
    reaches("a job that is turned away", isinstance(found, JobRejected))
    if isinstance(found, JobRejected):
        assert not any(word in found.rule for word in NOT_OURS), found
        assert not found.field.startswith("job.")
