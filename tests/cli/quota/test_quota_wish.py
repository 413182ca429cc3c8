"""What an operator writes about quotas, by options or in a file, in the language of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer import Exit

from fallow.cli.output.when import DURATION_RULE
from fallow.cli.quota.rows import as_object, table
from fallow.cli.quota.wish import changed_fields, read_quotas
from fallow.cli.quota.words import quota_rules
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Resources
from fallow.shared.events.operations import Quota, ReclaimFrom
from tests.cli.usage.test_commands import call
from tests.cluster.worlds.examples import cell, enqueued, node, place, started

CELL = CellPart(name="main", ordinal=0, pools=(Pool(name="train", gpus=100),))
FILE = CellFile(cells=(CELL,), tenants=(Tenant(name="lab"), Tenant(name="ada", parent="lab")))
FIELDS = (
    "there are gpu_type, guaranteed, limit, weight, lends, borrows, borrow_limit, lend_limit, reclaim, min_run_ms, "
    "reclaimable, tenant, parent"
)


def test_only_what_is_named_is_wished() -> None:
    options: dict[str, Any] = {"guaranteed": "4", "limit": None, "lends": False, "parent": "none", "min_run": "10min"}
    assert changed_fields(options) == {
        "guaranteed_milli": 4_000,
        "lends": False,
        "parent": None,
        "min_run_ms": 600_000,
    }


def test_limits_and_times_can_be_taken_away() -> None:
    options = {"limit": "none", "borrow_limit": "none", "lend_limit": "0", "min_run": "none"}
    assert changed_fields(options) == {
        "limit_milli": None,
        "borrow_limit_milli": None,
        "lend_limit_milli": 0,
        "min_run_ms": None,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guaranteed": "none"}, "fallow: --guaranteed = 'none': must be a number of GPUs of up to 12 digits\n"),
        (
            {"borrow_limit": "-1"},
            "fallow: --borrow-limit = '-1': must be a number of GPUs of up to 12 digits, or none\n",
        ),
        ({"limit": "1.5"}, "fallow: --limit = '1.5': must be a number of GPUs of up to 12 digits, or none\n"),
        (
            {"min_run": "soon"},
            f"fallow: --min-run = 'soon': must be {DURATION_RULE}, or none\n",
        ),
    ],
)
def test_what_is_no_number_is_wrong_use(options: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as caught:
        changed_fields(options)
    assert (caught.value.exit_code, capsys.readouterr().err) == (2, said)


def test_a_file_sets_several_at_once_each_whole(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: [{tenant: ada, guaranteed: 2}, {tenant: lab, limit: 9, reclaim: never, parent: null}]")
    assert read_quotas(path, FILE) == [
        {"tenant": "ada", "gpu_type": "gpu", "guaranteed_milli": 2_000, "parent": "lab"},
        {"tenant": "lab", "gpu_type": "gpu", "limit_milli": 9_000, "reclaim": "never"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "must hold a list of quotas, or one under the key `quotas` (got {})"),
        ("[]", "must hold a list of quotas, or one under the key `quotas` (got [])"),
        ("[", "line 1: not YAML: expected the node content, but found '<stream end>'"),
        ("- tenant: ada\n  limit: 1:30", "line 2: 1:30: a number has no colons; put text in quotes"),
        ("- tenant: ada\n  limit: 010", "line 2: 010: a number does not begin with 0; put text in quotes"),
        ("- tenant: ada\n  limit: 1\n  limit: 2", "line 3: [0].limit: the key stands in line 2 already"),
        ('- {tenant: ada, "a\\nb": 1}', rf"quotas[0].a\nb = 1: unknown field; {FIELDS}"),
        ("- 1", "quotas[0] = 1: must be a mapping of fields"),
        ("- {tenant: ada, limit: -1}", "quotas[0].limit = -1: must be at least 0"),
        ("- {tenant: ada, limits: 1}", f"quotas[0].limits = 1: unknown field (did you mean limit?); {FIELDS}"),
        ("- {tenant: ada, guaranteed: 2, limit: 1}", "quotas[0]: limit 1 is below guaranteed 2"),
        ("- {limit: 1}", "quotas[0].tenant: is missing"),
        (
            "[{tenant: ada, limit: 5}, {tenant: ada, gpu_type: h100}, {tenant: ada, gpu_type: gpu, limit: 9000}]",
            "quotas[2]: tenant ada has a row for GPU type gpu in quotas[0] already",
        ),
    ],
)
def test_a_file_that_holds_no_quotas_is_wrong_use(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    with pytest.raises(Exit) as caught:
        read_quotas(path, FILE)
    assert (caught.value.exit_code, capsys.readouterr().err) == (2, f"fallow: {path}: {said}\n")


@pytest.mark.parametrize(
    "words", [("ada",), (), ("ada", "--file", __file__, "--limit", "1"), ("--file", __file__, "--limit", "1")]
)
def test_a_tenant_and_a_change_or_a_file_are_needed(words: tuple[str, ...]) -> None:
    done = call("quota", "set", *words)
    said = "fallow: quota set: name a tenant and what is to change, or a --file alone\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_rules_are_told_where_they_are_unusual() -> None:
    quota = Quota(tenant="ada", gpu_type="gpu")
    unusual = Quota(
        tenant="ada", gpu_type="gpu", lends=False, borrow_limit_milli=1_500, reclaim=ReclaimFrom.NEVER, min_run_ms=1_000
    )
    assert quota_rules(quota) == []
    assert quota_rules(unusual) == [
        "borrows at most 1.5 GPUs",
        "lends nothing",
        "takes back nothing",
        "lets run for 1.0 s",
    ]


def test_the_tree_is_told_with_what_is_borrowed_lent_and_available() -> None:
    def shares(tenant: str, gpus: int, parent: str | None = None) -> e.QuotaSet:
        return e.QuotaSet(quota=Quota(tenant=tenant, gpu_type="gpu", guaranteed_milli=gpus * 1000, parent=parent))

    state = cell(
        node("n1"),
        shares("lab", 6),
        shares("ada", 2, "lab"),
        shares("bob", 4, "lab"),
        enqueued("job", resources=Resources(gpu_milli=5_000)),
        started("job", place(0, "n1", 0, 1, 2, 3, 4)),
    )
    assert [row[:8] for row in table(state)] == [
        ("lab", "gpu", "6", "none", "5", "0", "0", "3"),
        ("  ada", "gpu", "2", "none", "5", "3", "0", "3"),
        ("  bob", "gpu", "4", "none", "0", "0", "1", "3"),
    ]
    assert [row[0] for row in table(state, "ada")] == ["lab", "  ada"]
    assert [row[0] for row in table(state, "lab")] == ["lab", "  ada", "  bob"]
    assert [row["tenant"] for row in as_object(state, "bob")["quotas"]] == ["lab", "bob"]
    assert table(state, "eve") == []
    told = as_object(state)["quotas"]
    assert [(row["tenant"], row["parent"], row["depth"]) for row in told] == [
        ("lab", None, 0),
        ("ada", "lab", 1),
        ("bob", "lab", 1),
    ]


def test_of_a_quota_it_is_told_whether_a_person_has_set_it_or_the_cell_file() -> None:
    """One that a person changed behind the file is the person's, one that a file set again is the file's."""

    def limits(tenant: str, gpus: int, *, of_file: bool) -> e.QuotaSet:
        return e.QuotaSet(quota=Quota(tenant=tenant, gpu_type="gpu", limit_milli=gpus * 1000), of_file=of_file)

    state = cell(
        limits("file", 1, of_file=True),
        limits("person", 1, of_file=False),
        limits("both", 1, of_file=True),
        limits("both", 2, of_file=False),
        limits("again", 1, of_file=False),
        limits("again", 2, of_file=True),
    )
    told = {row["tenant"]: row["of_file"] for row in as_object(state)["quotas"]}
    assert told == {"file": True, "person": False, "both": False, "again": True}
    assert {row[0]: row[-1] for row in table(state)} == {
        "file": "",
        "person": "set at run time",
        "both": "set at run time",
        "again": "",
    }
