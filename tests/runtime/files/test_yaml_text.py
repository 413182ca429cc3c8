"""Whatever stands in a YAML text, reading it ends in plain values that can be shown, or in one line that says what is
wrong and where.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.log.admin.topics import TopicsFileError, parse_topics
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from fallow.shared.runtime.files.yaml_text import (
    LONG_CHARS,
    NUMBER_CHARS_MAX,
    YamlTextError,
    read_yaml,
    read_yaml_documents,
)
from tests.hypothesis_profile import reaches

FIELDS = ("ordinal", "driver", "node_lease_wall_ms")
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
    reaches("a cell file with a long number is refused", told)
    assert all(line.startswith("cell.yaml: ") and len(line) < 400 for line in told)


@given(NUMBERS)
def test_a_file_of_topics_with_any_number_is_refused_in_short_lines(number: str) -> None:
    with pytest.raises(TopicsFileError) as refused:
        parse_topics(f"topics: [{{name: jobs, partitions: {number}, colour: red}}]")
    assert all(len(line) < 400 for line in str(refused.value).splitlines())


@given(st.integers(-(10**40), 10**40))
def test_numbers_of_usual_length_are_what_they_say(number: int) -> None:
    assert read_yaml(f"{number}") == number


def _mistake(text: str) -> str:
    with pytest.raises(YamlTextError) as refused:
        read_yaml(text)
    return str(refused.value)


def test_the_error_names_the_line_and_the_length() -> None:
    said = "line 2: a number of 65 characters: at most 64 are read"
    assert _mistake(f"a: 1\nb: {'9' * (NUMBER_CHARS_MAX + 1)}\n") == said


def test_a_long_number_in_a_later_document_of_a_file_is_refused_with_its_line() -> None:
    with pytest.raises(YamlTextError, match=r"^line 3: a number of 65 characters"):
        list(read_yaml_documents(f"a: 1\n---\nb: {'9' * (NUMBER_CHARS_MAX + 1)}\n"))


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.getcwd []", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]"]
)
def test_nothing_but_plain_values_is_made(tag: str) -> None:
    assert _mistake(f"a: 1\nb: {tag}") == f"line 2: the tag {tag.partition(chr(32))[0]} cannot be used: leave it out"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("2020-01-01", "2020-01-01"),
        ("1", "1"),
        ("on", "on"),
        ("~", "~"),
        ("1.5", "1.5"),
        ("? !!binary aGk=\n ", "aGk="),
        ("? [a, b]\n ", "a list"),
        ("? {a: b}\n ", "a mapping"),
    ],
)
def test_a_key_that_is_no_text_is_refused_with_its_line_and_field(key: str, shown: str) -> None:
    said = f"line 3: run.env: the key {shown} is no text: put it in quotes"
    assert _mistake(f"id: a\nrun:\n  env: {{{key}: x}}\n") == said


def test_a_key_in_quotes_is_text() -> None:
    assert read_yaml("{'1': a, \"on\": b, '2020-01-01': c}") == {"1": "a", "on": "b", "2020-01-01": "c"}


@pytest.mark.parametrize(
    "text", ["workers: 8\nworkers: 16\n", "workers: 8\n'workers': 8\n", "workers: 8\n!!str workers: 1"]
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(text: str) -> None:
    assert _mistake(text) == "line 2: workers: the key stands in line 1 already"


def test_a_key_that_stands_twice_deep_within_is_named_by_all_above_it() -> None:
    assert _mistake("jobs:\n- id: a\n- run:\n    b: 1\n    b: 2\n") == (
        "line 5: jobs[1].run.b: the key stands in line 4 already"
    )


def test_a_key_may_stand_in_a_mapping_and_in_what_is_merged_into_it() -> None:
    text = "a: &a {k: 1, l: 2}\nb: &b {<<: *a, k: 3}\nc: {<<: *b, l: 4}\nd: *b\n"
    assert read_yaml(text) == {
        "a": {"k": 1, "l": 2},
        "b": {"k": 3, "l": 2},
        "c": {"k": 3, "l": 4},
        "d": {"k": 3, "l": 2},
    }


def test_a_line_break_in_a_key_is_shown_and_not_done() -> None:
    said = _mistake('"a\\nb\\e[31m": 1\n"a\\nb\\e[31m": 2\n')
    assert said == r"line 2: a\nb\x1b[31m: the key stands in line 1 already"


@pytest.mark.parametrize("number", ["1:30:00", "1:30", "-1:30", "1:30.5", "!!int '1:30'", "!!float '1:30'"])
def test_a_number_with_colons_is_refused(number: str) -> None:
    shown = number.rpartition(" ")[2].strip("'")
    assert _mistake(f"a: 1\nb: {number}") == f"line 2: {shown}: a number has no colons; put text in quotes"


@pytest.mark.parametrize("number", ["010", "-010", "+07", "00", "0_7", "!!int '09'"])
def test_a_number_that_begins_with_nought_is_refused(number: str) -> None:
    shown = number.rpartition(" ")[2].strip("'")
    assert _mistake(f"a: 1\nb: {number}") == f"line 2: {shown}: a number does not begin with 0; put text in quotes"


def test_numbers_may_be_nought_signed_and_broken() -> None:
    assert read_yaml("[0, -0, +7, 0.5, -0.5, 1.0e+3]") == [0, 0, 7, 0.5, -0.5, 1000.0]


@pytest.mark.parametrize(
    "number",
    ["1_0", "1_000", "-1_0", "0x1f", "-0x1f", "0b11", "0x1_f", "1_0.5", ".5_0", "!!int '1_0'", "!!float '1_0'"],
)
@pytest.mark.parametrize("beginning", ["", "#" * LONG_CHARS + "\n"], ids=["by_the_loader", "by_the_quick_loader"])
def test_a_number_that_is_not_written_with_digits_alone_is_refused(number: str, beginning: str) -> None:
    shown, line = number.rpartition(" ")[2].strip("'"), 2 + bool(beginning)
    rule = "a number is written with digits alone; put text in quotes"
    assert _mistake(f"{beginning}a: 1\nb: {number}") == f"line {line}: {shown}: {rule}"


def test_text_in_quotes_may_look_like_such_a_number() -> None:
    assert read_yaml("['1_0', \"0x10\", 0o17, a_1, 0xg]") == ["1_0", "0x10", "0o17", "a_1", "0xg"]


@pytest.mark.parametrize(
    "value",
    ["!!int ''", "!!int x", "!!float x", "!!bool x", "0x_", "!!int [1]", "!!int {a: 1}", "!!float [1]", "!!str [a]"],
)
def test_what_is_not_what_its_tag_says_is_refused_with_its_line(value: str) -> None:
    assert _mistake(f"a: 1\nb: {value}").startswith("line 2: ")


@pytest.mark.parametrize("text", ["2020-01-01", "2020-01-01T10:00:00Z", "2020-13-45"])
def test_a_date_is_the_text_that_stands_there(text: str) -> None:
    assert read_yaml(f"a: {text}") == {"a": text}


@pytest.mark.parametrize("text", ["a: [", "a: 'b", "\x1b", "a: *b", "[" * 20_000, "a\n--- b\n--- c", "&a [*a, {? *a}]"])
def test_what_is_no_yaml_is_told_in_one_short_line(text: str) -> None:
    said = _mistake(text)
    assert said.isprintable()
    assert len(said) < 200


def test_each_document_of_a_text_is_checked() -> None:
    with pytest.raises(YamlTextError, match=r"^line 4: a: the key stands in line 3 already$"):
        list(read_yaml_documents("a: 1\n---\na: 1\na: 2\n"))


def merges(levels: int, wide: int) -> str:
    """Mappings of which each merges the one before it so many times: every level multiplies what is to be merged."""
    lines = [f"a{at}: &a{at} {{<<: [{', '.join([f'*a{at - 1}'] * wide)}]}}" for at in range(1, levels + 1)]
    return "\n".join(["a0: &a0 {x: 1}", *lines])


@pytest.mark.parametrize(("levels", "wide"), [(20, 4), (200, 2), (3, 300), (50, 50)])
def test_merge_keys_that_stand_for_too_many_keys_are_refused_before_they_are_merged(levels: int, wide: int) -> None:
    assert _mistake(merges(levels, wide)).endswith("merge keys (<<) stand for more than 100000 keys")


@pytest.mark.parametrize(("levels", "wide"), [(200, 1), (7, 4), (1, 1_000)])
def test_merge_keys_that_stand_for_few_are_merged(levels: int, wide: int) -> None:
    assert read_yaml(merges(levels, wide))[f"a{levels}"] == {"x": 1}


def test_many_mappings_that_merge_a_large_one_are_refused() -> None:
    large = ", ".join(f"k{number}: 1" for number in range(1_000))
    text = f"a: &a {{{large}}}\n" + "\n".join(f"b{number}: {{<<: *a}}" for number in range(200))
    assert _mistake(text).endswith("merge keys (<<) stand for more than 100000 keys")


def test_a_mapping_that_merges_itself_is_read_once() -> None:
    assert read_yaml("a: &a {k: 1, <<: *a}") == {"a": {"k": 1}}


LONG = "# " + "x" * LONG_CHARS + "\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "line 3: a: the key stands in line 2 already"),
        ("1: 2\n", "line 2: the key 1 is no text: put it in quotes"),
        ("a: 010\n", "line 2: 010: a number does not begin with 0; put text in quotes"),
        ("[" * 5_000, "line 2: nested in more than 100 levels"),
        ("a: [\n", "line 3: not YAML: "),
        ("a: !!python/object:os.system {}\n", "line 2: the tag !!python/object:os.system cannot be used"),
    ],
)
def test_a_long_text_is_judged_by_the_same_rules(text: str, said: str) -> None:
    assert _mistake(LONG + text).startswith(said)


def test_a_long_text_costs_little_for_each_key() -> None:
    began_s = time.process_time()
    found = read_yaml("".join(f"key{number}: {number}\n" for number in range(50_000)))
    assert len(found) == 50_000
    assert time.process_time() - began_s < 8  # the other loader takes 16 here


@pytest.mark.parametrize("opener", ["[", "{a: ", "- "])
def test_a_short_text_of_many_levels_is_read_by_the_quick_loader_whatever_stands_before(opener: str) -> None:
    """The careful one goes over all open levels for each. It knows no directive %FOO, and reads on behind it."""
    with pytest.raises(YamlTextError, match="not YAML: found unknown directive name"):
        read_yaml("%FOO a\n---\n" + opener * (LONG_CHARS // 8))
