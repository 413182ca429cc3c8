"""Who mistypes a word of ours, or types one of another scheduler, is told the one that does it here."""

from __future__ import annotations

import sys

import pytest

from fallow.cli.app import COMMANDS, main
from fallow.cli.suggestions import ELSEWHERE, IN_GROUPS, KINDS
from tests.cli.test_options import LEAVES


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("submitt a.yaml", "fallow: no such command 'submitt'; did you mean fallow submit? See fallow --help"),
        ("squeue -u me", "fallow: no such command 'squeue'; did you mean fallow jobs? See fallow --help"),
        ("sbatch a.sh", "fallow: no such command 'sbatch'; did you mean fallow submit FILE? See fallow --help"),
        ("scancel 7", "fallow: no such command 'scancel'; did you mean fallow cancel ID? See fallow --help"),
        ("sinfo", "fallow: no such command 'sinfo'; did you mean fallow nodes? See fallow --help"),
        ("get nodes", "fallow: no such command 'get'; did you mean fallow nodes? See fallow --help"),
        ("get pods", "fallow: no such command 'get'; did you mean fallow jobs? See fallow --help"),
        ("queue list", "fallow: no such command 'queue'; did you mean fallow jobs? See fallow --help"),
        ("drain n1", "fallow: no such command 'drain'; did you mean fallow node drain NODE? See fallow --help"),
        ("node list", "fallow node: no such command 'list'; did you mean fallow nodes? See fallow node --help"),
        ("quota list", "fallow quota: no such command 'list'; did you mean fallow quota show? See fallow quota --help"),
        ("node dran n", "fallow node: no such command 'dran'; did you mean fallow node drain? See fallow node --help"),
        ("jobs --user me", "fallow jobs: no such option: --user; did you mean --tenant? See fallow jobs --help"),
        ("jobs --statu x", "fallow jobs: no such option: --statu; did you mean --status? See fallow jobs --help"),
        ("jobs --zzz", "fallow jobs: no such option: --zzz; see fallow jobs --help"),
        ("zzzzz", "fallow: no such command 'zzzzz'; see fallow --help"),
        ("get", "fallow: no such command 'get'; did you mean fallow jobs? See fallow --help"),
    ],
)
def test_the_word_that_was_meant_is_told(
    typed: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fallow", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, told + "\n")


def test_every_command_that_is_told_is_one() -> None:
    told = [*ELSEWHERE.values(), *KINDS.values(), *(found for group in IN_GROUPS.values() for found in group.values())]
    for words in told:
        names = [word for word in words.split() if word.islower() and not word.startswith("-")]
        assert " ".join(names) in LEAVES, words


def test_no_word_of_our_own_is_taken_for_one_of_others() -> None:
    assert [word for word in ELSEWHERE if word in COMMANDS] == []
    assert [(group, word) for group, words in IN_GROUPS.items() for word in words if f"{group} {word}" in LEAVES] == []
