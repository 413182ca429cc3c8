"""What was typed and is repeated in an answer: told whole up to some length, cut behind that."""

from __future__ import annotations

from fallow.cli.typed import LONG_CHARS, SHOWN_CHARS, with_words_cut


def test_a_typed_word_is_told_whole_up_to_its_length_and_one_sign_more_is_cut() -> None:
    whole, long = "w" * LONG_CHARS, "l" * (LONG_CHARS + 1)
    assert with_words_cut(f"no {whole}", [whole], {}) == f"no {whole}"
    assert with_words_cut(f"no {long}", [long], {}) == f"no {'l' * (SHOWN_CHARS - 3)}..."
