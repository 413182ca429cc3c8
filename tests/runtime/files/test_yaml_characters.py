"""What JSON writes is read as it was, by every reader of YAML and at every length; half a character is read by none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.shared.events.codec.encoding import encode
from fallow.shared.log.admin.access_rules import AccessFileError, parse_access
from fallow.shared.log.admin.topics import TopicsFileError, parse_topics
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from fallow.shared.runtime.files.yaml_text import LONG_CHARS, YamlTextError, read_yaml, read_yaml_documents
from tests.hypothesis_profile import reaches

SMILE = "\U0001f600"
PAIR, FIRST, SECOND = "\\ud83d\\ude00", "\\ud83d", "\\ude00"
RULE = "half of a pair of surrogates is no character, and cannot be written as UTF-8"
LONG = "# " + "long " * (LONG_CHARS // 5) + "\n"

CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("\\\"'ud8:#,{}[]&*!|>%@ \t\n\x00\x7f\x85\x9f\ufeff\u2028\u2029\ufffe\uffff" + SMILE),
)
TEXTS = st.one_of(st.text(CHARACTERS, max_size=12), st.sampled_from([PAIR, f"\\{PAIR}", FIRST, f"{SECOND}{FIRST}"]))


@given(st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_is_read_as_it_was(said: dict[str, list[str]], is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(said, ensure_ascii=is_ascii, indent=indent)
    reaches("a text with a pair", "\\ud8" in text)
    assert [read_yaml(text), *read_yaml_documents(f"--- {text}\n--- {text}\n")] == [said] * 3
    assert read_yaml(f"{LONG}{text}") == said


@given(TEXTS, TEXTS, st.booleans())
def test_what_stands_in_no_double_quotes_stays_as_it_is(plain: str, quoted: str, is_ascii: bool) -> None:
    single = plain.encode("unicode_escape").decode().replace("'", "''")
    text = f"a: '{single}' # {SECOND}\nb: {json.dumps(quoted, ensure_ascii=is_ascii)}\nc: x{PAIR}\nd: |\n  {FIRST}\n"
    wanted = {"a": single.replace("''", "'"), "b": quoted, "c": f"x{PAIR}", "d": f"{FIRST}\n"}
    assert (read_yaml(text), read_yaml(LONG + text)) == (wanted, wanted)


JOB = {"id": "a", "tenant": "vision", "run": {"driver": "process", "argv": ["echo", SMILE], "env": {"A": SMILE}}}


RAW = f"id: a\ntenant: vision\nrun: {{driver: process, argv: [echo, {SMILE}], env: {{A: {SMILE}}}}}\n"


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("many", [1, 2, 600])
def test_jobs_in_json_are_read_in_every_form(is_ascii: bool, many: int) -> None:
    jobs = [{**JOB, "id": f"a{number}"} for number in range(many)]
    lines = [json.dumps(job, ensure_ascii=is_ascii) for job in jobs]
    forms = [
        json.dumps(jobs, ensure_ascii=is_ascii),
        json.dumps({"jobs": jobs}, ensure_ascii=is_ascii, indent=2),
        "\n".join(lines),
        "".join(f"- {line}\n" for line in lines),
        "".join(f"---\n{line}\n" for line in lines),
    ]
    for form in forms:
        assert {encode(job.run) for job in read_jobs(form, "jobs")} == {encode(read_jobs(RAW, "jobs")[0].run)}


CELL = "cells: [{{name: main, ordinal: 0, pools: [{{name: virtual, gpus: 64}}]}}]\ntenants: [{{name: vision}}]\n{}"
READERS: dict[str, tuple[Callable[[str], Any], type[ValueError]]] = {
    "YAML": (read_yaml, YamlTextError),
    "documents": (lambda text: list(read_yaml_documents(text)), YamlTextError),
    "jobs": (lambda text: read_jobs(text, "jobs.yaml"), JobFileError),
    "cells": (lambda text: parse_cell_file(text, "cell.yaml"), CellFileError),
    "topics": (parse_topics, TopicsFileError),
    "rights": (lambda text: parse_access(text, {"jobs"}), AccessFileError),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("begin", ["", LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'a: [b, {{c: "x{FIRST}"}}]', f"a[1].c: '{FIRST}'"),
        (f'a: [b, {{c: "x{SECOND}{FIRST}y"}}]', f"a[1].c: '{SECOND}'"),
        (f'a: {{"{FIRST}": 1}}', f"a: '{FIRST}'"),
        (f'{{"a": ["{PAIR}", "{PAIR}{SECOND}"]}}', f"a[1]: '{SECOND}'"),
        ('a: {b: "\\U0000dc00"}', "a.b: '\\U0000dc00'"),
        (f'"{FIRST}"', f"'{FIRST}'"),
    ],
)
def test_half_a_character_is_refused_by_every_reader_with_its_field(
    reader: str, begin: str, text: str, told: str
) -> None:
    read, error = READERS[reader]
    with pytest.raises(error) as refused:
        read(begin + text)
    assert f"line {1 + begin.count(chr(10))}: {told}: {RULE}" in str(refused.value)


@pytest.mark.parametrize("begin", ["", LONG], ids=["short", "long"])
def test_a_whole_character_in_a_cell_file_is_told_whole(begin: str) -> None:
    for written in (PAIR, SMILE):
        with pytest.raises(CellFileError, match=f"line .: colour{SMILE} = 1: unknown field"):
            parse_cell_file(begin + CELL.format(f'"colour{written}": 1\n'), "cell.yaml")


def test_what_a_loader_reads_otherwise_than_its_events_tell_is_never_half_a_character() -> None:
    for text in (f'# a\x85b: "{FIRST}"\n', f'# a\u2028b: "{PAIR}"\n'):
        with pytest.raises(YamlTextError, match="half of a pair"):
            read_yaml(text)


@pytest.mark.parametrize("begin", ["", LONG], ids=["short", "long"])
@pytest.mark.parametrize("number", ["00110000", "01000000", "ffffffff"])
def test_a_number_of_no_character_is_refused_with_its_field(begin: str, number: str) -> None:
    with pytest.raises(YamlTextError) as refused:
        read_yaml(f'{begin}a: ["\\U{number}"]\n')
    assert str(refused.value).endswith(
        f": a[0]: '\\U{number}': there is no character of this number: the last one has 10FFFF"
    )
    assert read_yaml(f'{begin}a: "\\U0010ffff\\U0001f600"') == {"a": f"\U0010ffff{SMILE}"}
