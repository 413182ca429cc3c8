"""Jobs from a file: YAML, JSON or JSON lines; one job or many. Checked by the very model that admission checks with."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fallow.cli.job.files.waits import circle_among
from fallow.cli.job.files.waits import rule_of as rule_of_circle
from fallow.services.admission.policy.beside_room import amiss_anywhere, misnamed
from fallow.shared.checker_words import HALF_A_CHARACTER
from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX, encode, shorten, written
from fallow.shared.events.fields.job_ids import in_full, in_short
from fallow.shared.events.fields.value import plain, replace
from fallow.shared.events.fields.values import Dependency, JobSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.events.validation.rules_told import (
    causes,
    field_of,
    is_of_the_driver,
    is_shown,
    rule_of,
    unknown_field,
)
from fallow.shared.events.validation.unknown_fields import fields_around, read_valid
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.files.signs import visible
from fallow.shared.runtime.files.text_file import FILE_BYTES_MAX, TextFileError, read_text_file, text_of
from fallow.shared.runtime.files.yaml_text import DEPTH_MAX, NUMBER_CHARS_MAX, YamlTextError, read_yaml_documents

EXPANSION_MAX = 100
"""So many times may aliases repeat what a file holds, in the mean."""

MISTAKES_TOLD = 20

_OF_A_SCRIPT = re.compile(r"\A#!(?!.*\bfallow\b)|^#SBATCH\b", re.MULTILINE)
_OF_A_FILE = {"jobs", *JobSpec.__struct_fields__}

SCRIPT = (
    "looks like a script (#!, #SBATCH); docs/coming-from.md says how a job is written here: what it starts stands in "
    "`run`, and what #SBATCH asks for in fields"
)
MANIFEST = (
    "looks like a Kubernetes manifest (apiVersion); docs/coming-from.md says how a job is written here, and "
    "docs/reference/job-fields.md lists its fields"
)


class JobFileError(ErrorOfSeveralLines, ValueError):
    """The file holds no valid jobs. One line for each mistake: file, job, field, value and rule."""


def read_jobs(
    text: str,
    name: str,
    tenant: str | None = None,
    *,
    is_typed: bool = False,
    array: int | None = None,
    after: Sequence[Dependency] = (),
) -> list[JobSpec]:
    """The jobs of a file's text; `name` is how messages call it, `tenant` stands in where a job names none, and where
    it `is_typed` no job may name another one. Each job becomes an array of `array` elements, and waits for `after`
    besides what it waits for itself.

    A file holds a job, a list of jobs, a mapping with the one key `jobs`, or several of these as YAML documents or JSON
    lines. Raises JobFileError.
    """
    found, mistakes, count = list[JobSpec](), list[str](), 0
    for number, item in enumerate(_items(text, name), start=1):
        if tenant is not None and isinstance(item, dict):
            item.setdefault("tenant", tenant)
        try:
            if is_typed:
                _must_be_of(item, tenant)
            found.append(_job(_with(item, array, after)))
        except ValidationError as error:
            if len(mistakes) >= MISTAKES_TOLD:  # thousands of lines would take a minute, and no user reads so many
                count += error.error_count()
                continue
            problems = causes(error.errors(include_url=False))
            count += len(problems)
            lines = map(_line, problems[: MISTAKES_TOLD - len(mistakes)])
            mistakes += [f"{name}: {_called(number, item)}: {line}" for line in lines]
        except ValueError as error:
            count += 1
            mistakes.append(f"{name}: {_called(number, item)}: {error}")
    if mistakes:
        more = [f"{name}: and {count - MISTAKES_TOLD} more"] if count > MISTAKES_TOLD else []
        # Keys of the file stand in these lines, with whatever signs they have.
        raise JobFileError("\n".join(map(visible, [*mistakes[:MISTAKES_TOLD], *more])))
    _ids_are_once(found, name)
    _none_waits_for_itself(found, name)
    return found


def _items(text: str, name: str) -> list[Any]:
    items: list[Any] = []
    for document in _documents_of_jobs(text, name):
        if isinstance(document, dict) and set(document) == {"jobs"}:
            document = document["jobs"]  # noqa: PLW2901 - what is wrapped is what was meant
            if not isinstance(document, list):
                raise JobFileError(f"{name}: jobs = {written(document)}: must be a list")
        items += document if isinstance(document, list) else [document]
    if not items:
        raise JobFileError(f"{name}: holds no job")
    return items


def _documents_of_jobs(text: str, name: str) -> list[Any]:
    """The documents of a file. Of one that holds no job it is told where it looks like a script."""
    may_be_a_script = bool(_OF_A_SCRIPT.search(text))  # or a job file with such a line among its comments
    try:
        documents = _documents(text, name)
    except JobFileError as error:
        if may_be_a_script:
            raise JobFileError(f"{name}: {SCRIPT}") from error
        raise
    if may_be_a_script and not any(map(_is_of_a_job, documents)):
        raise JobFileError(f"{name}: {SCRIPT}")
    return documents


def _is_of_a_job(document: Any) -> bool:
    parts = document if isinstance(document, list) else [document]
    return any(isinstance(part, dict) and _OF_A_FILE & part.keys() for part in parts)


def _documents(text: str, name: str) -> list[Any]:
    lines = {number: line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    # Several objects in lines of their own are no YAML; a single one is, whether its keys are quoted or not.
    if len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines.values()):
        return [_json_line(line, f"{name}: line {number}") for number, line in lines.items()]
    try:
        documents = [document for document in read_yaml_documents(text) if document is not None]
    except YamlTextError as error:
        raise JobFileError(f"{name}: {error}") from error
    if _is_larger(documents, EXPANSION_MAX * (1 + len(text))):
        raise JobFileError(f"{name}: its aliases make it more than {EXPANSION_MAX} times as large")
    return documents


def _json_line(line: str, where: str) -> Any:
    try:
        found = json.loads(line, object_pairs_hook=_keys_once, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise JobFileError(f"{where}: not JSON: {error.msg} in {shorten(error.doc)}") from error
    except RecursionError as error:
        raise JobFileError(f"{where}: nested in too many levels") from error
    except ValueError as error:
        # A key that stands twice, a number of too many digits.
        raise JobFileError(f"{where}: {shorten(str(error))}") from error
    if line.count("[") + line.count("{") > DEPTH_MAX and _is_deeper(found, DEPTH_MAX):
        raise JobFileError(f"{where}: nested in more than {DEPTH_MAX} levels")
    return found


def _is_deeper(value: Any, most: int) -> bool:
    """Whether the value has more levels than that."""
    level = [value]
    for _ in range(most + 1):
        level = [part for each in level for part in _parts(each)]
    return bool(level)


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _whole_number(digits: str) -> int:
    """As in YAML: Python makes no number of thousands of digits, and says so in words about Python."""
    if len(digits) > NUMBER_CHARS_MAX:
        raise ValueError(f"a number of {len(digits)} characters: at most {NUMBER_CHARS_MAX} are read")
    return int(digits)


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shorten(key)}: the key stands twice in one object")
        found[key] = value
    return found


def _is_larger(value: Any, most: int) -> bool:
    """Whether there are more parts in it than that: by aliases of aliases a few lines can hold billions."""
    rest = [value]
    while rest and most:
        most -= 1
        part = rest.pop()
        rest.extend(_parts(part))
    return bool(rest)


def _must_be_of(item: Any, tenant: str | None) -> None:
    if isinstance(item, dict) and item["tenant"] != tenant:
        raise ValueError(
            f"tenant = {written(item['tenant'])}: --tenant says {tenant}: name the same one, or leave one out"
        )


def _with(item: Any, array: int | None, after: Sequence[Dependency]) -> Any:
    """The job with what was asked for beside the file; what is no job stays as it is."""
    if not isinstance(item, dict):
        return item
    waits = item.get("after", [])
    more = {"after": [*waits, *map(plain, after)]} if after and isinstance(waits, list) else {}
    return {**item, **more, **({} if array is None else {"array": array})}


def _job(item: Any) -> JobSpec:
    if not isinstance(item, dict):
        raise ValueError(f"must be a mapping with the fields of a job (got {written(item)})")  # noqa: TRY004
    if "apiVersion" in item and ("kind" in item or "metadata" in item):
        raise ValueError(MANIFEST)
    # Through JSON, as admission reads it: strict about types, and no field that it does not know.
    text = json.dumps(item)
    if "\\ud" in text:
        _must_be_characters(item)
    job = in_short(read_valid(JobSpec, text, forbid_unknown=True))
    if (why := misnamed(job) or amiss_anywhere(_named_in_full(job))) is not None:
        raise ValueError(f"{why.field} = {written(why.value)}: {why.rule}")
    size = len(encode(SubmitJob(job=job)))
    if size > SUBMISSION_BYTES_MAX:
        raise ValueError(f"is {size} bytes, a submission has at most {SUBMISSION_BYTES_MAX}")
    return job


def _named_in_full(job: JobSpec) -> JobSpec:
    full, after = in_full(job)
    return replace(job, id=full, after=after)


def _must_be_characters(value: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raises ValueError for a text below that Kafka cannot be given: a pair of surrogates makes a character, a half of
    one does not.
    """
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            _must_be_characters(key, path)
            _must_be_characters(part, (*path, key))
    elif isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        field = f"{shorten(field_of(path))} = " if path else ""
        raise ValueError(f"{field}{written(value)}: {HALF_A_CHARACTER}")


def _line(problem: Any) -> str:
    """One of the mistakes: field, value and rule."""
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    field = shorten(field_of(problem["loc"], kind))
    if is_of_the_driver(field, kind):
        value = value.get("driver", {}) if isinstance(value, dict) else {}
    shown = f" = {written(value)}" if is_shown(kind, value) else ""
    rule = rule_of(field, kind, problem["msg"], context)
    if kind == "extra_forbidden":
        rule = unknown_field(problem["loc"], fields_around(JobSpec, problem["loc"]))
    return f"{field}{shown}: {rule}" if field else rule


def _called(number: int, item: Any) -> str:
    name = item.get("id") if isinstance(item, dict) else None
    shown = shorten(name) if isinstance(name, str) else written(name)
    return f"job {number} ({shown})" if name is not None else f"job {number}"


def _ids_are_once(jobs: list[JobSpec], name: str) -> None:
    seen: dict[tuple[str, str], int] = {}
    for number, job in enumerate(jobs, start=1):
        first = seen.setdefault((job.tenant, job.id), number)
        if first != number:
            raise JobFileError(f"{name}: job {number} ({job.id}): id: job {first} has it already")


def _none_waits_for_itself(jobs: list[JobSpec], name: str) -> None:
    circle = circle_among(jobs)
    if circle is not None:
        where = f"{name}: job {circle.at + 1} ({jobs[circle.at].id})"
        raise JobFileError(f"{where}: after = {written(circle.after)}: {rule_of_circle(circle, jobs)}")


def read_text(file: str) -> tuple[str, str]:
    """The text of a file and how to call it; `-` is standard input. Raises JobFileError."""
    try:
        if file == "-" and sys.stdin is None:
            raise JobFileError("standard input: is closed")
        if file == "-":
            return text_of(sys.stdin.buffer.read(FILE_BYTES_MAX + 1)), "standard input"
        return read_text_file(Path(file), may_be_pipe=True), visible(file)
    except TextFileError as error:
        raise JobFileError(f"{'standard input' if file == '-' else visible(file)}: {error}") from error
    except OSError as error:
        raise JobFileError(f"standard input: cannot be read: {error.strerror}") from error
