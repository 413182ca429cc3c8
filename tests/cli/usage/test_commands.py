from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from fallow.cli.app import COMMANDS
from fallow.cli.errors.failures import NOT_IN_IMAGE, Exit, explain
from fallow.cli.errors.unanswered import Passes, unanswered
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.runtime.stack.child import environment_with
from fallow.shared.view.keys import keys_of
from fallow.shared.view.library import LIBRARY, library_digest
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import CellView
from tests.cli.worlds.cells import publish, show
from tests.cli.worlds.logs import an_honest_log
from tests.cli.worlds.warm import warm

TOP = Path(__file__).parents[3]
Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


def call(*words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FALLOW_")}
    environment = {**kept, "PYTHONPATH": environment_with(TOP)["PYTHONPATH"], "COLUMNS": "120", **variables}
    return warm(words, environment, stdin)


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str) -> Fallow:
    def here(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return call(*words, stdin=stdin, FALLOW_KAFKA=kafka, FALLOW_REDIS=redis_url, FALLOW_NAMESPACE=namespace)

    return here


@pytest.fixture
async def told(fallow: Fallow, kafka: str, redis_url: str, namespace: str) -> Fallow:
    """A cell with an honest log and its view."""
    assert fallow("topics", "create").returncode == 0
    written = an_honest_log("vision/")
    log = KafkaLog(kafka, "test")
    await log.start()
    await publish(log, written.records, namespace)
    await log.stop()
    await show(redis_url, namespace, written.state)
    return fallow


def last(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def test_help_lists_every_command() -> None:
    words = call("--help").stdout.split()
    assert [command for command in COMMANDS if command not in words] == []


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "submit",
        "jobs",
        "job",
        "cancel",
        "nodes",
        "tenant",
        "topics",
        "log",
        "verify",
        "service",
        "cell",
        "feed",
        "view",
    ],
)
def test_each_command_has_help(command: str) -> None:
    done = call(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"fallow {command}" in done.stdout


def test_the_shell_completes_commands() -> None:
    done = call(_FALLOW_COMPLETE="complete_bash", COMP_WORDS="fallow to", COMP_CWORD="1")
    assert done.stdout.split() == ["topics"]


def test_the_version_is_that_of_the_package() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout) == (0, f"fallow {version('fallow')}\n")


def test_what_an_extra_brings_is_named_where_it_is_missing() -> None:
    missing = ModuleNotFoundError("No module named 'lupa.lua51'", name="lupa.lua51")
    assert explain(missing) == (Exit.USAGE, "lupa is not installed: pip install 'fallow[demo]'")
    assert explain(ModuleNotFoundError("No module named 'fallow.shared.nothing'", name="fallow.shared.nothing")) is None


@pytest.mark.parametrize("package", NOT_IN_IMAGE)
def test_what_the_image_leaves_out_is_named_there(package: str) -> None:
    left_out = (TOP / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert package.replace(".", "/") in left_out
    told = explain(ModuleNotFoundError(f"No module named {package!r}", name=package))
    assert told is not None
    assert told[1].startswith(f"{package} is not installed: this image holds what services need")


def test_an_unknown_command_is_wrong_use() -> None:
    assert call("fly").returncode == 2


def test_the_cell_file_that_comes_along_has_no_mistakes() -> None:
    done = call("cell", "check", "deploy/cell.yaml", "--json")
    assert (done.returncode, last(done)["cells"]) == (0, ["main"])


def test_the_check_of_a_cell_file_says_where_jobs_wait_that_name_no_queue(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    pools, queues = "[{name: a, gpus: 8}]", "[{name: urgent}, {name: default}]"
    path.write_text(f"cells: [{{name: main, ordinal: 0, pools: {pools}, queues: {queues}}}]\ntenants: [{{name: x}}]\n")
    assert "queue of their own or of their tenant wait in urgent\n" in call("cell", "check", str(path)).stdout
    assert last(call("cell", "check", str(path), "--json"))["default_queues"] == {"main": "urgent"}


def test_a_cell_file_with_which_no_service_would_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(f"{Path('deploy/cell.yaml').read_text()}\nretention_hours: {{nope: 1}}\n")
    done = call("cell", "check", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"fallow: {path}: retention_hours.nope: no topic with a retention; these have one: ")


def test_a_mistake_in_a_cell_file_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text("cells:\n  - {name: main, ordinal: 0, pools: [{name: a, gpus: 8}]}\ntenants:\n  - {nam: x}\n")
    done = call("cell", "check", str(path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"fallow: {path}: line 4: tenants[0].name: is missing"


def test_a_job_that_is_not_valid_is_not_sent_and_every_mistake_is_named() -> None:
    done = call("submit", "-", stdin='{"id": "a", "tenant": "b", "workers": "x", "gpus": 3}')
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "fallow: standard input: job 1 (a): workers = 'x': must be a whole number",
        (
            "standard input: job 1 (a): gpus = 3: unknown field (did you mean resources.gpu_milli? 1000 is one GPU; "
            "docs/reference/job-fields.md lists all)"
        ),
    ]


@pytest.mark.parametrize("words", [("jobs",), ("log", "tail"), ("verify",), ("topics", "check")])
def test_what_is_away_is_told_in_one_line(words: tuple[str, ...]) -> None:
    done = call(*words, FALLOW_KAFKA="127.0.0.1:1", FALLOW_REDIS="redis://127.0.0.1:1/0")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


def test_an_address_is_needed_where_a_server_is_asked() -> None:
    done = call("log", "tail", FALLOW_KAFKA="jars")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_cell_that_is_not_in_the_file_is_wrong_use() -> None:
    done = call("jobs", "--cell", "moon")
    assert (done.returncode, done.stderr) == (2, "fallow: --cell = 'moon': is unknown: there is main\n")


@pytest.mark.real_kafka
def test_topics_are_missing_then_created_then_as_declared(fallow: Fallow, namespace: str) -> None:
    missing = fallow("topics", "check")
    assert (missing.returncode, missing.stdout.splitlines()[0]) == (
        1,
        f"{namespace}.submissions is missing; it should have 12 partitions",
    )
    assert fallow("topics", "create").returncode == 0
    assert last(fallow("topics", "check", "--json")) == {
        "ok": True,
        "topics": 12,
        "differences": [],
        "rights_checked": False,
        "rights_differences": [],
        "rights_removed": [],
    }
    assert "rights: the broker checks none" in fallow("topics", "check").stdout


@pytest.mark.real_kafka
def test_submitted_jobs_are_published(told: Fallow) -> None:
    done = told("submit", "-", "--tenant", "vision", stdin="- id: a\n- id: b\n")
    assert (done.returncode, done.stdout) == (0, "2 submitted: vision/a and 1 more (2 GPUs in all)\n")


@pytest.mark.real_kafka
def test_a_day_is_fed_to_a_cell_that_runs_already(told: Fallow) -> None:
    done = told("feed", "--count", "20", "--nodes", "4", "--minutes", "0.1", "--name", "x", "--json")
    assert (done.returncode, last(done)["name"]) == (0, "x")
    assert last(done)["sent"] >= 20


def test_the_functions_of_the_view_are_loaded_once_and_again(fallow: Fallow) -> None:
    first, second = fallow("view", "load", "--json"), fallow("view", "load", "--json")
    assert (first.returncode, second.returncode) == (0, 0)
    assert last(first) == last(second) == {"ok": True, "library": LIBRARY, "digest": library_digest()}


@pytest.mark.real_kafka
def test_waiting_for_an_answer_that_does_not_come_says_so(told: Fallow) -> None:
    done = told("submit", "-", "--wait", "--timeout", "1", stdin="{id: a, tenant: vision}")
    assert (done.returncode, done.stderr) == (3, f"fallow: {unanswered('vision/a', Passes.ADMISSION, 1)}\n")


@pytest.mark.real_kafka
def test_a_job_that_was_submitted_before_is_answered_from_the_view(told: Fallow) -> None:
    done = told("submit", "-", "--wait", "--timeout", "10", "--json", stdin="{id: second, tenant: vision}")
    assert (done.returncode, last(done)) == (0, {"submitted": 1, "jobs": {"vision/second": "running"}})
    over = told("submit", "-", "--wait", "--timeout", "10", stdin="{id: first, tenant: vision}")
    assert over.stdout == "vision/first was submitted before; it is finished. An id is used once.\n"
    assert over.returncode == Exit.BEFORE


def test_up_names_an_address_at_which_nothing_answers(redis_url: str, tmp_path: Path) -> None:
    words = ("up", "--data", str(tmp_path / "data"))
    told = "which does not answer; unset it and `up` starts its own"
    away = call(*words, FALLOW_KAFKA="127.0.0.1:1", FALLOW_REDIS=redis_url)
    assert (away.returncode, away.stderr) == (3, f"fallow: FALLOW_KAFKA (or --kafka) names 127.0.0.1:1, {told}\n")
    here = redis_url.removeprefix("redis://").partition("/")[0]  # takes connections, and that is all that is asked
    away = call(*words, FALLOW_KAFKA=here, FALLOW_REDIS="redis://ada:secret@127.0.0.1:1/0")
    address = "redis://***@127.0.0.1:1/0"
    assert (away.returncode, away.stderr) == (3, f"fallow: FALLOW_REDIS (or --redis) names {address}, {told}\n")


SECURED = {"FALLOW_KAFKA_SECURITY": "SASL_SSL", "FALLOW_KAFKA_USERNAME": "ada", "FALLOW_KAFKA_PASSWORD": "s3cret"}


@pytest.mark.parametrize("words", [("up", "--data", "DATA"), ("demo",)], ids=["up", "demo"])
def test_who_starts_services_is_told_that_they_speak_to_a_kafka_without_security(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Also where it would start a Kafka of its own: its services would ask that one for a proof."""
    data = tmp_path / "data"
    done = call(*(word.replace("DATA", str(data)) for word in words), **SECURED)
    rule = "must be PLAINTEXT: services that this command starts speak to a Kafka without security only"
    way = f"unset {', '.join(SECURED)}, or start each service by itself (SECURITY.md)"
    told = f"fallow: FALLOW_KAFKA_SECURITY = SASL_SSL: {rule}; {way}\n"
    assert (done.returncode, done.stderr) == (2, told)
    assert not data.exists()


@pytest.mark.real_kafka
def test_without_waiting_too_a_job_that_was_submitted_before_is_told(told: Fallow) -> None:
    done = told("submit", "-", "--tenant", "vision", stdin="[{id: first}, {id: second}, {id: new}]")
    assert done.stdout.splitlines() == [
        "vision/first was submitted before; it is finished. An id is used once.",
        "vision/second was submitted before; it is running. An id is used once.",
        "1 submitted: vision/new (1 worker of 1 GPU)",
    ]
    assert done.returncode == 4


@pytest.mark.real_kafka
def test_a_job_that_lives_may_be_submitted_again(told: Fallow) -> None:
    done = told("submit", "-", "--json", stdin="{id: second, tenant: vision}")
    assert (done.returncode, last(done)) == (0, {"submitted": 1, "jobs": {"vision/second": "running"}})


@pytest.mark.real_kafka
def test_who_sends_to_a_namespace_without_topics_is_told_its_name(fallow: Fallow, namespace: str) -> None:
    done = fallow("submit", "-", stdin="{id: first, tenant: vision}")
    assert done.returncode == Exit.AWAY
    assert done.stderr.startswith(f"fallow: there are no topics of namespace {namespace} (FALLOW_NAMESPACE)")
    first, again = (fallow("topics", "create").stdout.splitlines() for _ in range(2))
    assert (first[0].startswith("created: "), f"topics of namespace {namespace} at" in first[1]) == (True, True)
    assert f"topics of namespace {namespace} at" in again[0]


@pytest.mark.real_kafka
def test_a_topic_that_is_gone_is_named_with_what_makes_it_anew(fallow: Fallow, namespace: str, kafka: str) -> None:
    async def delete(*topics: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        await admin.delete_topics(list(topics))
        await admin.close()

    fallow("topics", "create")
    asyncio.run(delete(f"{namespace}.decisions"))
    words = "fallow: Kafka has no topic {}. Run: fallow topics create\n"
    repair = fallow("log", "repair")
    assert (repair.returncode, repair.stderr) == (Exit.AWAY, words.format(f"{namespace}.decisions"))
    fallow("topics", "create")
    asyncio.run(delete(f"{namespace}.submissions"))
    sent = fallow("submit", "-", stdin="{id: first, tenant: vision}")
    assert (sent.returncode, sent.stderr) == (Exit.AWAY, words.format(f"{namespace}.submissions"))


@pytest.mark.real_kafka
def test_a_page_of_jobs_says_that_there_are_more_and_how_to_go_on(told: Fallow) -> None:
    begin = told("jobs", "--limit", "1").stdout.splitlines()
    assert begin[0].startswith("the first 1 job of cell main at version ")
    assert begin[-1] == "and more: --after vision/first"
    nobodys = told("jobs", "--tenant", "visoin")
    assert (nobodys.returncode, nobodys.stdout) == (Exit.NO, "")
    assert nobodys.stderr.startswith("fallow: visoin is no tenant of the cell file (")
    assert last(told("jobs", "--tenant", "visoin", "--json"))["jobs"] == []
    assert not told("jobs", "--tenant", "vision").stderr
    rest = told("jobs", "--limit", "2", "--after", "vision/first").stdout
    assert rest.startswith("2 jobs behind vision/first of cell main at version ")
    assert "and more" not in rest + told("jobs", "--limit", "3").stdout


@pytest.mark.real_kafka
def test_the_quotas_of_one_tenant_are_shown_alone(told: Fallow) -> None:
    rows = last(told("quota", "show", "--tenant", "vision", "--json"))["quotas"]
    assert {row["tenant"] for row in rows} == {"vision"}
    assert told("quota", "show", "--tenant", "vision").stdout.startswith("Quotas around vision of cell main at ")
    unknown = told("quota", "show", "--tenant", "visoin")
    assert (unknown.returncode, unknown.stdout) == (Exit.NO, "")
    assert unknown.stderr.startswith("fallow: visoin is no tenant of the cell file (")


@pytest.mark.real_kafka
def test_a_quota_of_gpus_that_no_pool_has_is_refused_unless_it_is_meant(told: Fallow) -> None:
    done = told("quota", "set", "vision", "--gpu-type", "h100", "--limit", "8")
    why = "no pool of cell main has GPUs of type h100 (there are gpu)"
    assert (done.returncode, done.stderr) == (
        Exit.USAGE, f"fallow: {why}; nothing was done; give --yes to set it all the same\n",
    )  # fmt: skip
    meant = told("quota", "set", "vision", "--gpu-type", "h100", "--limit", "8", "--yes", "--timeout", "1")
    assert meant.returncode == Exit.AWAY, "it was sent, and no service answers here"


@pytest.mark.real_kafka
def test_a_quota_of_no_tenant_is_refused_unless_a_group_is_meant(told: Fallow, tmp_path: Path) -> None:
    done = told("quota", "set", "vison", "--limit", "8")
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("fallow: vison is no tenant of the cell file (")
    assert done.stderr.endswith(
        "; nothing was done; give --yes to make it a group, for tenants below it alone (did you mean vision?)\n"
    )
    meant = told("quota", "set", "vison", "--limit", "8", "--yes", "--timeout", "1")
    assert meant.returncode == Exit.AWAY, "it was sent, and no service answers here"
    assert "it is a group" not in meant.stderr, "no service has taken it yet"
    file = tmp_path / "quotas.yaml"
    file.write_text("[{tenant: lab, limit: 8}, {tenant: vision, limit: 8, parent: lab}]")
    both = told("quota", "set", "--file", str(file), "--timeout", "1")
    assert both.returncode == Exit.AWAY, "who is named as a parent is a group that is meant"


@pytest.mark.real_kafka
def test_jobs_nodes_and_tenants_are_listed(told: Fallow) -> None:
    assert "node-0, node-1" in told("jobs").stdout
    assert [row["id"] for row in last(told("jobs", "--status", "queued", "--json"))["jobs"]] == ["third"]
    both = told("jobs", "--status", "queued", "--status", "finished", "--json")
    assert [row["id"] for row in last(both)["jobs"]] == ["first", "third"]
    assert [row["id"] for row in last(told("jobs", "--live", "--json"))["jobs"]] == ["second", "third"]
    assert "8 GPUs free" in told("nodes").stdout
    assert [row["gpus_free"] for row in last(told("nodes", "--json"))["nodes"]] == [4, 4]
    assert last(told("tenant", "list", "--json"))["tenants"][0]["accounts"][0]["used_milli"] == 8000
    assert "vision" in told("tenant", "list").stdout
    assert [row["tenant"] for row in last(told("tenant", "shares", "--json"))["shares"]][-1] == "vision"
    assert "OF LATE" in told("tenant", "shares").stdout


@pytest.mark.real_kafka
async def test_whoever_reads_of_a_fenced_cell_is_told(told: Fallow, redis_url: str, namespace: str) -> None:
    functions = RedisFunctions(redis_url)
    await CellView(functions, keys_of(namespace, "main")).fence(is_fenced=True)
    await functions.stop()
    for words in (["nodes"], ["jobs"], ["job", "second"], ["node", "show", "node-0"], ["tenant", "list"]):
        done = told(*words)
        assert done.stderr.startswith("fallow: cell main is fenced: "), words
        assert "Run: fallow verify" in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout
    assert last(told("nodes", "--json"))["is_fenced"] is True
    sent = told("submit", "-", stdin="{id: second, tenant: vision}")
    assert sent.stdout == "1 submitted: vision/second (1 worker of 1 GPU)\n"
    assert sent.stderr.startswith("fallow: cell main is fenced: ")


@pytest.mark.real_kafka
def test_a_job_has_its_story(told: Fallow) -> None:
    done = told("job", "first")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "job vision/first of cell main: finished")
    assert "Job vision/first starts, attempt 1: 2 GPUs on node-0 (0-1)." in done.stdout
    assert [step["version"] for step in last(told("job", "first", "--json"))["story"]] == [4, 4, 5, 8]
    assert told("job", "absent").returncode == 1


@pytest.mark.real_kafka
def test_a_job_is_found_by_tenant_and_id_in_every_command(told: Fallow) -> None:
    for words in (["--tenant", "vision", "first"], ["vision/first"], ["first"]):
        assert told("job", *words).stdout.startswith("job vision/first of cell main: finished\n")
        assert told("log", "why", *words).stdout.startswith("job vision/first of cell main\n")
        assert told("cancel", *words).stdout == "Job vision/first was over before: it is finished.\n"
    shown = last(told("job", "first", "--json"))
    assert [shown[name] for name in ("job", "tenant", "id")] == ["vision/first", "vision", "first"]
    assert [shown["row"][name] for name in ("job", "tenant", "id")] == ["vision/first", "vision", "first"]


@pytest.mark.real_kafka
def test_what_is_over_cannot_be_cancelled(told: Fallow) -> None:
    done = told("cancel", "first")
    assert (done.returncode, done.stdout) == (1, "Job vision/first was over before: it is finished.\n")
    assert told("cancel", "absent").returncode == 1


@pytest.mark.real_kafka
def test_decisions_are_told_in_sentences(told: Fallow) -> None:
    assert "    Job vision/first runs, attempt 1." in told("log", "show", "5").stdout.splitlines()
    assert told("log", "show", "99").returncode == 1
    assert [found["version"] for found in last(told("log", "tail", "-n", "2", "--json"))["decisions"]] == [8, 9]


@pytest.mark.real_kafka
def test_an_exported_log_verifies_as_the_live_one_does(told: Fallow, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    assert last(told("log", "export", str(path), "--json")) == {"file": str(path), "records": 10}
    live, exported = last(told("verify", "--json")), last(told("verify", "--file", str(path), "--json"))
    assert (live["ok"], exported["ok"], live["to_version"], exported["to_version"]) == (True, True, 9, 9)


@pytest.mark.real_kafka
@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
def test_a_log_that_goes_to_standard_output_stands_there_alone(told: Fallow, path: str) -> None:
    done = told("log", "export", path)
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()][:2] == [0, 1]
    assert (done.returncode, done.stderr) == (0, f"10 records in {path}\n")


@pytest.mark.real_kafka
async def test_verify_ends_with_1_where_redis_shows_something_else(
    told: Fallow, redis_url: str, namespace: str
) -> None:
    redis: Redis = Redis.from_url(redis_url, decode_responses=True)
    nodes = keys_of(namespace, "main")[2]
    row = str(await redis.hget(nodes, "node-1"))
    await redis.hset(nodes, "node-9", row.replace("node-1", "node-9"))
    await redis.hdel(nodes, "node-1")
    done = told("verify", "--json")
    assert (done.returncode, last(done)["first_violation"]["invariant"]) == (1, "I7")
    await redis.hdel(nodes, "node-9")
    await redis.aclose()
    done = told("verify", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert "the view of cell main is being built" in done.stderr
