"""Whatever number stands in a YAML text, reading it ends in a value that can be shown or in one error that names it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shared.log.topics import TopicsFileError, parse_topics
from shared.runtime.cell_file import CellFileError, parse_cell_file
from shared.runtime.yaml_text import NUMBER_CHARS_MOST, read_yaml, read_yaml_documents

FIELDS = ("ordinal", "driver", "lease_wall_ms")
"""Fields that want a number, a word, or nothing of that name."""

NUMBERS = st.one_of(
    st.builds(lambda digit, many: f"0x{digit * many}", st.sampled_from("1f"), st.integers(1, 9_000)),
    st.builds(lambda digit, many: digit * many, st.sampled_from("19"), st.integers(1, 9_000)),
    st.builds(lambda many: f"0b{'1' * many}", st.integers(1, 9_000)),
    st.builds(lambda many: f"0{'7' * many}", st.integers(1, 9_000)),
    st.builds(lambda many: f"1{':59' * many}", st.integers(1, 3_000)),
    st.builds(lambda many: f"-{'9' * many}", st.integers(1, 9_000)),
)


def _cell_file(field: str, number: str) -> str:
    return f"cells:\n  - {{name: main, {field}: {number}, pools: [{{name: t, gpus: 8, gpus_per_node: 8}}]}}\n"


def _refusal(text: str) -> list[str]:
    try:
        parse_cell_file(text, "cell.yaml")
    except CellFileError as refused:
        return str(refused).splitlines()
    return []


@given(st.sampled_from(FIELDS), NUMBERS)
def test_a_cell_file_with_any_number_is_read_or_refused_in_short_lines(field: str, number: str) -> None:
    told = _refusal(_cell_file(field, number))
    assert all(line.startswith("cell.yaml: ") and len(line) < 400 for line in told)


@given(NUMBERS)
def test_a_file_of_topics_with_any_number_is_refused_in_short_lines(number: str) -> None:
    with pytest.raises(TopicsFileError) as refused:
        parse_topics(f"topics: [{{name: jobs, partitions: {number}, colour: red}}]")
    assert all(len(line) < 400 for line in str(refused.value).splitlines())


@given(st.integers(-(10**40), 10**40))
def test_numbers_of_usual_length_are_what_they_say(number: int) -> None:
    assert read_yaml(f"{number}") == read_yaml(hex(number)) == number


def test_the_error_names_the_line_and_the_length() -> None:
    with pytest.raises(ValueError, match=r"^line 2: a number of 65 characters$"):
        read_yaml(f"a: 1\nb: {'9' * (NUMBER_CHARS_MOST + 1)}\n")


def test_no_object_of_python_is_made() -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml("!!python/object/apply:os.getcwd []")


def test_a_long_number_in_a_later_document_of_a_file_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"^line 3: a number of 65 characters$"):
        list(read_yaml_documents(f"a: 1\n---\nb: {'9' * (NUMBER_CHARS_MOST + 1)}\n"))
