from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fallow.cli.app import main
from fallow.cli.errors.failures import Exit
from fallow.cli.job.files.file import MISTAKES_TOLD, JobFileError, read_jobs, read_text
from fallow.cli.job.files.units import odd_units
from fallow.local.service_set import KINDS, service_set
from fallow.shared.events.fields.value import plain
from fallow.shared.events.fields.values import Dependency
from fallow.shared.events.validation.rules_told import FIELDS_PAGE, JOB_RULE, LABEL_RULE, NAME_RULE

DOCS = Path(__file__).parents[3] / "docs"
VARIABLE_RULE = "the name of a variable must have a character, and neither '=' nor a control character"
ELEMENTS_ALONE = "must not end in a dot and a number: only elements of arrays are named so"
OF_MEMORY = "memory_mib? 1024 is one GiB"
ASKED_OTHERWISE = f"unknown field (did you mean gpu_milli? 1000 is one GPU; {FIELDS_PAGE} lists all)"


@pytest.mark.parametrize(
    "text",
    [
        "id: a\ntenant: t\n---\nid: b\ntenant: t\n",
        "- {id: a, tenant: t}\n- {id: b, tenant: t}\n",
        "jobs:\n  - {id: a, tenant: t}\n  - {id: b, tenant: t}\n",
        '[{"id": "a", "tenant": "t"}, {"id": "b", "tenant": "t"}]',
        '{"id": "a", "tenant": "t"}\n{"id": "b", "tenant": "t"}\n',
    ],
    ids=["YAML documents", "a YAML list", "under jobs", "a JSON list", "JSON lines"],
)
def test_jobs_may_come_in_many_forms(text: str) -> None:
    assert [job.id for job in read_jobs(text, "f")] == ["a", "b"]


def test_a_tenant_stands_in_where_a_job_names_none() -> None:
    jobs = read_jobs("- {id: a}\n- {id: b, tenant: own}\n", "f", "mine")
    assert [job.tenant for job in jobs] == ["mine", "own"]


def test_a_job_of_another_tenant_than_the_typed_one_is_told_with_both() -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs("- {id: a}\n- {id: b, tenant: own}\n- {id: c, tenant: [1]}\n", "f", "mine", is_typed=True)
    assert str(raised.value).splitlines() == [
        "f: job 2 (b): tenant = 'own': --tenant says mine: name the same one, or leave one out",
        "f: job 3 (c): tenant = [1]: --tenant says mine: name the same one, or leave one out",
    ]
    assert len(read_jobs("- {id: a}\n- {id: b, tenant: mine}\n", "f", "mine", is_typed=True)) == 2


@pytest.mark.parametrize("is_option", [True, False])
def test_what_is_typed_counts_and_the_variable_stands_in(
    is_option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text("{id: a, tenant: own}", encoding="utf-8")
    words = ["fallow", "--kafka", "127.0.0.1:1", "submit", str(tmp_path / "job.yaml")]
    if not is_option:
        monkeypatch.setenv("FALLOW_TENANT", "mine")
    monkeypatch.setattr("sys.argv", [*words, *(["--tenant", "mine"] if is_option else [])])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (Exit.USAGE if is_option else Exit.AWAY)
    assert ("--tenant says mine" in capsys.readouterr().err) == is_option


SCRIPTS = [
    "#!/bin/bash\nsrun python train.py\n",
    "\n#SBATCH --gpus=8\nsrun python train.py\n",
    "#!/bin/bash\n#SBATCH --gpus=8\n",
    '#!/bin/bash\necho "at: $HOST"\n',
    "#!/bin/bash\n- a\nb: [\n",
]
BEGINNINGS = ["#!/usr/bin/env -S fallow submit\n", "#!/bin/cat\n", "#SBATCH --gpus=8 was asked for before\n"]


@pytest.mark.parametrize("text", SCRIPTS)
def test_of_a_script_the_page_that_tells_how_a_job_is_written_is_named(text: str) -> None:
    with pytest.raises(JobFileError, match=r"looks like a script .*docs/coming-from\.md"):
        read_jobs(text, "f")
    assert "sbatch" in (DOCS / "coming-from.md").read_text(encoding="utf-8")
    assert len(read_jobs("# a job of #SBATCH times\n{id: a, tenant: t}", "f")) == 1


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("jobs", ["id: a\ntenant: t\n", "- {id: a, tenant: t}\n", "jobs:\n- {id: a, tenant: t}\n"])
def test_a_job_file_is_no_script_whatever_its_comments_are(beginning: str, jobs: str) -> None:
    assert [job.id for job in read_jobs(beginning + jobs, "f")] == ["a"]
    with pytest.raises(JobFileError, match="workerz"):
        read_jobs(beginning + jobs.replace("tenant: t", "tenant: t, workerz: 2" if "{" in jobs else "workerz: 2"), "f")


def test_of_a_job_file_that_is_run_by_fallow_its_mistake_is_told() -> None:
    with pytest.raises(JobFileError, match="line 4: not YAML"):
        read_jobs(BEGINNINGS[0] + "id: a\ntenant: [\n", "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: holds no job"),
        ("just words", "f: job 1: must be a mapping with the fields of a job (got 'just words')"),
        ("{id: a}", "f: job 1 (a): tenant: is missing"),
        (
            "{id: A b, tenant: t}",
            f"f: job 1 (A b): id = 'A b': {JOB_RULE}",
        ),
        (
            "{id: llama-3.1, tenant: t}",
            f"f: job 1 (llama-3.1): id = 'llama-3.1': {ELEMENTS_ALONE}",
        ),
        ("{id: a, tenant: t, priority: 1.5}", "f: job 1 (a): priority = 1.5: must be a whole number"),
        (
            "{id: a, tenant: t, resources: {gpu: 1}}",
            f"f: job 1 (a): resources.gpu = 1: {ASKED_OTHERWISE}",
        ),
        (
            "{id: a, tenant: t, workers: 1, workers_min: 2}",
            "f: job 1 (a): workers_min = 2: must be at most workers, which is 1",
        ),
        ("- {id: a, tenant: t}\n- {id: a, tenant: t}", "f: job 2 (a): id: job 1 has it already"),
        ("jobs: {a: 1}", "f: jobs = {'a': 1}: must be a list"),
        ("jobs: null", "f: jobs = null: must be a list"),
        ("{id: a, tenant: t, after: [b, a]}", "f: job 1 (a): after[0] = 'b': must be a mapping of fields"),
        ("{id: a, tenant: t, after: [{job: a}]}", "f: job 1 (a): after = 'a': names the job itself"),
        ("{id: a, tenant: t, after: [{job: t/a}]}", "f: job 1 (a): after = 'a': names the job itself"),
        ("{id: a, tenant: t, after: [{job: b}, {job: t/b, when: any}]}", "f: job 1 (a): after = 'b': stands twice"),
        ("{id: a, tenant: t, array_index: 3}", "f: job 1 (a): array_index = '3': is set by the cell"),
        ("{id: a, tenant: t, array_max_running: 3}", "f: job 1 (a): array_max_running = '3': is for arrays"),
        (
            f"{{id: {'a' * 126}, tenant: t, array: 20}}",
            f"f: job 1 ({'a' * 97}...): id = '{'a' * 96}...: the id of an array this large has at most 125 characters",
        ),
        (
            "- {id: a, tenant: t, after: [{job: b}]}\n- {id: b, tenant: t, after: [{job: a}]}",
            "f: job 2 (b): after = 'a': waits for b already",
        ),
        (
            "{id: a, tenant: t, array: 2, after: [{job: a.1}]}",
            "f: job 1 (a): after = 'a.1': is an element of the job itself",
        ),
        (
            "{id: a, tenant: t, run: {driver: process, argv: ['', x]}}",
            "f: job 1 (a): run.argv[0] = '': must name a program",
        ),
        (
            "{id: a, tenant: t, run: {driver: process, argv: [x], env: {A=B: x}}}",
            f"f: job 1 (a): run.env = 'A=B': {VARIABLE_RULE}",
        ),
        (
            "{id: a, tenant: t, run: {driver: process, argv: [x], env: {'': x}}}",
            f"f: job 1 (a): run.env = '': {VARIABLE_RULE}",
        ),
        (
            f'{{"id": "a", "tenant": "t"}}\n{{"id": "b", "priority": {"9" * 5_000}}}',
            "f: line 2: a number of 5000 characters: at most 64 are read",
        ),
        (
            "id: a\nrun: {driver: process, argv: [x], env: {2020-01-01: x}}\n",
            "f: line 2: run.env: the key 2020-01-01 is no text: put it in quotes",
        ),
        ("id: a\n? !!binary aGk=\n: x\n", "f: line 2: the key aGk= is no text: put it in quotes"),
        (
            "id: a\nargv: [!!binary aGk=]\n",
            "f: line 2: the tag !!binary cannot be used: leave it out",
        ),
        ("workers: 8\nworkers: 16\n", "f: line 2: workers: the key stands in line 1 already"),
        ('{"id": "a", "id": "c"}', "f: line 1: id: the key stands in line 1 already"),
        ('{"id": "b"}\n\n{"id": "a", "id": "c"}', "f: line 3: id: the key stands twice in one object"),
        ('{"id": "b"}\n{"run": {"k": 1, "k": 1}}', "f: line 2: k: the key stands twice in one object"),
        ('{"id": "b"}\n{"id": x}', 'f: line 2: not JSON: Expecting value in {"id": x}'),
        ("max_run_ms: 1:30:00", "f: line 1: 1:30:00: a number has no colons; put text in quotes"),
        ("id: a\nmax_run_ms: 010", "f: line 2: 010: a number does not begin with 0; put text in quotes"),
        ("a: [", "f: line 1: not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_mistake_is_told_with_job_field_value_and_rule(text: str, said: str) -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs(text, "f")
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run: {duration_ms: 1000}", f"run.driver: is missing: 'virtual' or 'process' ({FIELDS_PAGE})"),
        ("run: {driver: process, argv: [x], env: {driver: 5}}", "run.env.driver = 5: must be text"),
        ("run: {driver: docker}", "run.driver = 'docker': must be 'virtual' or 'process'"),
        ("run: {driver: process, argv: []}", "run.argv: must have at least 1 item"),
        ("run: {driver: process, argv: ls}", "run.argv = 'ls': must be a list"),
        ("run: virtual", "run = 'virtual': must be a mapping"),
        ("resources: 8", "resources = 8: must be a mapping of fields"),
        ("queue: a b", f"queue = 'a b': {NAME_RULE}"),
        ("tolerations: [a b]", f"tolerations[0] = 'a b': {LABEL_RULE}"),
        ("node_labels: [a b]", "node_labels[0] = 'a b': must be KEY=A, KEY=A|B, KEY!=A, KEY or !KEY, without spaces"),
        ("hold: 1", "hold = 1: must be true or false"),
        ("max_run_ms: 24h", "max_run_ms = '24h': must be a whole number of milliseconds"),
        ("retry: {backoff_ms: 1s}", "retry.backoff_ms = '1s': must be a whole number of milliseconds"),
        ("resources: {memory_mib: 1Gi}", "resources.memory_mib = '1Gi': must be a whole number of MiB"),
        ("resources: {cpu_milli: 1.5}", "resources.cpu_milli = 1.5: must be a whole number of thousandths of a CPU"),
        ("resources: {gpu_milli: 1.5}", "resources.gpu_milli = 1.5: must be a whole number of thousandths of a GPU"),
        (
            "resources: {gpu_milli: 1500}",
            "resources.gpu_milli = 1500: above 1000 must be a multiple of 1000: a share sits on one device",
        ),
        (
            "gpus: 8",
            f"gpus = 8: unknown field (did you mean resources.gpu_milli? 1000 is one GPU; {FIELDS_PAGE} lists all)",
        ),
        (
            "resources: {nvidia.com/gpu: 8}",
            f"resources.nvidia.com/gpu = 8: {ASKED_OTHERWISE}",
        ),
        (
            "resources: {cpus: 8}",
            f"resources.cpus = 8: unknown field (did you mean cpu_milli? 1000 is one CPU; {FIELDS_PAGE} lists all)",
        ),
        (
            "resources: {memory: 8G}",
            f"resources.memory = '8G': {ASKED_OTHERWISE}".replace("gpu_milli? 1000 is one GPU", OF_MEMORY),
        ),
        ("run: {driver: virtual, gpus: 1}", f"run.gpus = 1: unknown field ({FIELDS_PAGE} lists them)"),
        ("tenat: b", f"tenat = 'b': unknown field (did you mean tenant? {FIELDS_PAGE} lists all)"),
        (
            "resources: {gpu_mili: 1}",
            f"resources.gpu_mili = 1: unknown field (did you mean gpu_milli? {FIELDS_PAGE} lists all)",
        ),
        (
            "run: {driver: process, argv: [x], envs: {}}",
            f"run.envs: unknown field (did you mean env? {FIELDS_PAGE} lists all)",
        ),
        ("run: {driver: virtual, argvs: 1}", f"run.argvs = 1: unknown field ({FIELDS_PAGE} lists them)"),
        (
            "after: [{job: b, whn: any}]",
            f"after[0].whn = 'any': unknown field (did you mean when? {FIELDS_PAGE} lists all)",
        ),
        (
            "scaling: {min: 1}",
            "scaling = {'min': 1}: is unsupported in this version: leave it out (docs/reference/job-fields.md)",
        ),
        (
            "scaling: [x]",
            f"scaling[0] = 'x': is unsupported in this version: leave it out ({FIELDS_PAGE})",
        ),
        (
            "heterogeneous: 3",
            f"heterogeneous = 3: is unsupported in this version: leave it out ({FIELDS_PAGE})",
        ),
        ("array: 2000", "array = 2000: must be at most 1000"),
        ("kind: batch", "kind = 'batch': must be 'training' or 'inference'"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_a_job_file(line: str, said: str) -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs(f"id: a\ntenant: t\n{line}\n", "f")
    assert str(raised.value) == f"f: job 1 (a): {said}"


@pytest.mark.parametrize("tenant", [None, "t"])
def test_a_manifest_of_kubernetes_is_told_in_one_line_and_its_page_tells_how_a_job_is_written(
    tenant: str | None,
) -> None:
    manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {parallelism: 4}\n"
    with pytest.raises(JobFileError) as raised:
        read_jobs(manifest, "f", tenant)
    assert str(raised.value) == (
        "f: job 1: looks like a Kubernetes manifest (apiVersion); docs/coming-from.md says how a job is written here, "
        f"and {FIELDS_PAGE} lists its fields"
    )
    assert "apiVersion" in (DOCS / "coming-from.md").read_text(encoding="utf-8")


def test_a_mistake_in_what_a_job_runs_is_named_as_it_stands_in_the_file() -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs("{id: a, tenant: t, run: {driver: process, command: x}}", "f")
    assert [line.split(": ")[2].split(" ")[0] for line in str(raised.value).splitlines()] == ["run.argv", "run.command"]


def test_a_date_among_the_words_of_a_job_stays_as_it_was_written() -> None:
    run = "run: {driver: process, argv: [x, 2020-01-01T10:00:00Z], env: {DAY: 2020-01-01}}"
    (job,) = read_jobs(f"id: a\ntenant: t\n{run}\n", "f")
    assert plain(job.run) == {
        "driver": "process",
        "argv": ("x", "2020-01-01T10:00:00Z"),
        "env": {"DAY": "2020-01-01"},
    }


@pytest.mark.parametrize("deep", ["[" * 3_000 + "]" * 3_000, "[" * 100_000 + "]" * 100_000])
def test_json_lines_of_bottomless_nesting_are_refused(deep: str) -> None:
    with pytest.raises(JobFileError, match=r"^f: "):
        read_jobs(f'{{"id": "a", "tenant": "t"}}\n{{"id": {deep}}}', "f")


CHAIN = "".join(f"- &a{n} [*a{n - 1}]\n" for n in range(1, 1_500))


@pytest.mark.parametrize(
    "text",
    [
        f"- &a0 [1]\n{CHAIN}",
        "id: x\nat: [&a0 [1], " + ", ".join(f"&a{n} {{k: *a{n - 1}}}" for n in range(1, 1_500)) + "]\n",
        "\n".join('{"id": "a", "after": ' + "[" * depth + "]" * depth + "}" for depth in (300, 980)),
    ],
)
def test_levels_without_end_are_one_line_whether_written_out_or_made_by_aliases(text: str) -> None:
    with pytest.raises(JobFileError, match=r"^f: line 1?\d*: nested in more than 100 levels"):
        read_jobs(text, "f")


@pytest.mark.parametrize("file", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file_of_jobs(file: str) -> None:
    with pytest.raises(JobFileError, match=f"^{file}: cannot be read: must be a regular file or a pipe$"):
        read_text(file)


def names(**options: Any) -> list[str]:

    return [
        spec.name
        for spec in service_set(
            kafka="k:1", redis="redis://r", namespace="n", cell_file=Path("c"), data_dir=Path("d"), **options
        ).specs
    ]


def test_a_service_set_has_one_of_each_kind() -> None:
    assert names() == [kind.name for kind in KINDS]


def test_replicas_are_numbered() -> None:
    assert [name for name in names(replicas={"admission": 2, "metrics": 0}) if name[:3] in {"adm", "met"}] == [
        "admission-1",
        "admission-2",
    ]


def test_the_embedded_broker_carries_one_of_each() -> None:
    assert names(embedded=True) == [kind.name for kind in KINDS]
    with pytest.raises(ValueError, match="replicas: admission = 2: the embedded broker carries one of each"):
        names(embedded=True, replicas={"admission": 2})


def test_replicas_of_an_unknown_service_are_refused() -> None:
    with pytest.raises(ValueError, match="replicas: 'billing' is no service"):
        names(replicas={"billing": 1})


def test_of_thousands_of_mistakes_the_first_are_told_and_how_many_more_there_are() -> None:
    with pytest.raises(JobFileError) as caught:
        read_jobs("\n".join(f"- {{id: j{number}, gpus: 8}}" for number in range(3_000)), "jobs.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == MISTAKES_TOLD + 1
    assert lines[-1] == f"jobs.yaml: and {2 * 3_000 - MISTAKES_TOLD} more"


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        ("gpu_milli: 8", ["a: resources.gpu_milli = 8 is 0.008 of a GPU for each worker; 8 whole GPUs would be 8000"]),
        ("cpu_milli: 4", ["a: resources.cpu_milli = 4 is 0.004 of a CPU for each worker; 4 whole CPUs would be 4000"]),
        ("gpu_milli: 8000", []),
        ("gpu_milli: 100", []),
        ("cpu_milli: 0", []),
    ],
)
def test_a_wish_for_almost_nothing_is_told_with_what_may_have_been_meant(wishes: str, told: list[str]) -> None:
    jobs = read_jobs(f"{{id: a, tenant: ada, resources: {{{wishes}}}}}", "f")
    assert list(odd_units(jobs)) == told


@pytest.mark.parametrize(
    ("max_run_ms", "told"),
    [
        (3600, ["a: max_run_ms = 3600 ends it when it has run for 3.6 s; 3600 s would be 3600000"]),
        (59_000, ["a: max_run_ms = 59000 ends it when it has run for 59.0 s; 59000 s would be 59000000"]),
        (60_000, []),
    ],
)
def test_a_limit_of_a_run_below_a_minute_is_told_with_what_may_have_been_meant(
    max_run_ms: int, told: list[str]
) -> None:
    jobs = read_jobs(f"{{id: a, tenant: ada, max_run_ms: {max_run_ms}}}", "f")
    assert list(odd_units(jobs)) == told


def test_of_many_wishes_for_almost_nothing_the_first_few_are_told() -> None:
    text = "\n".join(f"- {{id: j{n}, tenant: ada, resources: {{gpu_milli: 1}}}}" for n in range(40))
    assert list(odd_units(read_jobs(text, "f")))[5:] == ["and 35 more wishes of this kind"]


def test_of_very_many_mistakes_the_first_are_told_and_the_others_counted() -> None:
    keys = "".join(f"key{number}: {number}\n" for number in range(50_000))
    began_s = time.process_time()
    with pytest.raises(JobFileError) as refused:
        read_jobs(f"id: a\ntenant: t\n{keys}", "jobs.yaml")
    took_s = time.process_time() - began_s
    lines = str(refused.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "jobs.yaml: and 49980 more"), lines[-1]
    assert took_s < 10


A_CIRCLE = """
- {id: alone, tenant: t, after: [{job: first}, {job: of-another}]}
- {id: last, tenant: t, array: 3, after: [{job: middle}]}
- {id: first, tenant: t, after: [{job: last.2, when: any}]}
- {id: middle, tenant: t, after: [{job: elsewhere}, {job: first}]}
"""


def test_jobs_of_one_file_that_wait_for_each_other_are_told_at_the_last_of_them() -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs(A_CIRCLE, "f")
    said = "f: job 4 (middle): after = 'first': waits for middle already, by way of last"
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("last.2", "last.3"),  # no such element
        ("id: first, tenant: t", "id: first, tenant: u"),
        ("{job: first}]}", "{job: first-of-all}]}"),
    ],
)
def test_jobs_that_do_not_wait_for_each_other_are_taken(right: str, wrong: str) -> None:
    assert len(read_jobs(A_CIRCLE.replace(right, wrong), "f")) == 4


def test_a_job_that_the_command_line_lets_wait_for_one_of_the_file_does_not_wait_for_itself() -> None:
    with pytest.raises(JobFileError, match="job 1 \\(a\\): after = 'a': names the job itself"):
        read_jobs("- {id: a, tenant: t}\n- {id: b, tenant: t}\n", "f", after=[Dependency(job="a")])


def a_chain(jobs: int, *, is_closed: bool) -> str:
    lines = [f"{{id: j{n}, tenant: t, after: [{{job: j{n + 1}}}]}}" for n in range(jobs - 1)]
    end = "[{job: j0}]" if is_closed else "[]"
    return "\n".join(f"- {line}" for line in [*lines, f"{{id: j{jobs - 1}, tenant: t, after: {end}}}"])


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_chain_of_thousands_of_jobs_is_followed_to_its_end(is_closed: bool) -> None:
    text = a_chain(3_000, is_closed=is_closed)
    if not is_closed:
        assert len(read_jobs(text, "f")) == 3_000
        return
    with pytest.raises(JobFileError) as raised:
        read_jobs(text, "f")
    said = str(raised.value)
    assert said.startswith("f: job 3000 (j2999): after = 'j0': waits for j2999 already, by way of j1, j2, ")
    assert said.endswith(" and 2,988 more")
