"""What was typed and is repeated in an answer, and what strangers wrote: told whole up to some length, cut behind."""

from __future__ import annotations

from fallow.cli.arguments.typed import LONG_CHARS, SHOWN_CHARS, with_words_cut
from fallow.cli.log.dead_letters import HEADER_CHARS_SHOWN, HEADERS_SHOWN, header_lines


def test_a_typed_word_is_told_whole_up_to_its_length_and_one_sign_more_is_cut() -> None:
    whole, long = "w" * LONG_CHARS, "l" * (LONG_CHARS + 1)
    assert with_words_cut(f"no {whole}", [whole], {}) == f"no {whole}"
    assert with_words_cut(f"no {long}", [long], {}) == f"no {'l' * (SHOWN_CHARS - 3)}..."


def test_the_headers_of_a_dead_letter_are_shown_up_to_a_number_and_the_others_counted() -> None:
    few = [("reason", "unreadable")] + [("h", "v")] * (HEADERS_SHOWN - 1)
    assert [*header_lines(few)] == ["reason: unreadable (claimed)"] + ["h: v"] * (HEADERS_SHOWN - 1)
    shown = [*header_lines([*few, *[("h", "v")] * 5_000])]
    assert shown == [*header_lines(few), "... 5,000 more headers; --json shows all of them"]


def test_a_long_header_of_a_dead_letter_is_cut_and_says_by_how_much() -> None:
    whole = "v" * HEADER_CHARS_SHOWN
    assert [*header_lines([("h", whole)])] == [f"h: {whole}"]
    assert [*header_lines([("h", whole + "w")])] == [f"h: {whole}... (1 more character)"]
    assert [*header_lines([("n" * 2_000, "")])] == [f"{'n' * HEADER_CHARS_SHOWN}... (976 more characters): "]
