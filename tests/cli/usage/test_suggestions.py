"""Who mistypes a word of ours, or types one of another scheduler, is told the one that does it here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fallow.cli.app import COMMANDS, main
from fallow.cli.errors.suggestions import (
    ELSEWHERE,
    IN_GROUPS,
    KINDS,
    NEVER_GUESSED,
    SCONTROL,
    STATUSES,
    WAYS,
    command_meant,
)
from fallow.cli.node.emptying import EMPTY
from fallow.services.placement.lifecycle.nodes.removal import STOP_IT
from fallow.shared.cluster.model.job import JobStatus
from tests.cli.usage.test_options import LEAVES

SEE_NODE = "See fallow node --help"
TOO_MANY_FOR_JOBS = (
    "fallow jobs: got unexpected extra argument(s) (vision/many); one job is told by `fallow job vision/many`, "
    "those of a tenant by --tenant"
)
TOO_MANY_FOR_SUBMIT = (
    "fallow submit: got unexpected extra argument(s) (b.yaml); one file at a time; several go in one, a line `---` "
    "between them, or by `fallow submit -`"
)
TOO_MANY_FOR_NODES = "fallow nodes: got unexpected extra argument(s) (n1 n2); one node is told by `fallow node show n1`"
NO_WORDS = "it takes no words: `fallow log why ID` tells who gave the order, and when"
OURS = ", ".join(f"'{status}'" for status in JobStatus)

GROUPS: dict[str, list[str]] = {}
for words in LEAVES:
    if " " in words:
        GROUPS.setdefault(words.partition(" ")[0], []).append(words.partition(" ")[2])


def mistyped(word: str) -> set[str]:
    """All words that differ from this one in one letter: left out, doubled, replaced, or swapped with the next."""
    cuts = [(word[:at], word[at:]) for at in range(len(word))]
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = {head + tail[1:] for head, tail in cuts} | {head + tail[0] + tail for head, tail in cuts}
    found |= {head + letter + tail[1:] for head, tail in cuts for letter in letters}
    return found | {head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1}


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_a_mistyped_word_is_never_answered_with_a_command_that_nothing_takes_back(group: str) -> None:
    known = GROUPS[group]
    typed = {word for name in known for word in mistyped(name)} - {*known, *IN_GROUPS.get(group, {})}
    answers = {command_meant(group, word, known) for word in sorted(typed)}
    assert [name for name in sorted(NEVER_GUESSED) if f"fallow {group} {name}" in answers] == []
    assert answers - {""}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("submitt a.yaml", "fallow: no such command 'submitt'; did you mean fallow submit? See fallow --help"),
        ("squeue -u me", "fallow: no such command 'squeue'; did you mean fallow jobs? See fallow --help"),
        ("sbatch a.sh", "fallow: no such command 'sbatch'; did you mean fallow submit FILE? See fallow --help"),
        ("scancel 7", "fallow: no such command 'scancel'; did you mean fallow cancel ID? See fallow --help"),
        ("logs a", "fallow: no such command 'logs'; did you mean fallow job ID? See fallow --help"),
        ("sinfo", "fallow: no such command 'sinfo'; did you mean fallow nodes? See fallow --help"),
        ("get nodes", "fallow: no such command 'get'; did you mean fallow nodes? See fallow --help"),
        ("get pods", "fallow: no such command 'get'; did you mean fallow jobs? See fallow --help"),
        ("queues", "fallow: no such command 'queues'; did you mean fallow queue list? See fallow --help"),
        ("drain n1", "fallow: no such command 'drain'; did you mean fallow node drain NODE? See fallow --help"),
        ("node ls", "fallow node: no such command 'ls'; did you mean fallow node list? See fallow node --help"),
        ("hold a", "fallow: no such command 'hold'; did you mean fallow job hold ID? See fallow --help"),
        ("shares", "fallow: no such command 'shares'; did you mean fallow tenant shares? See fallow --help"),
        ("job kill a", "fallow job: no such command 'kill'; did you mean fallow job cancel ID? See fallow job --help"),
        ("job cancle a", "fallow job: no such command 'cancle'; did you mean fallow job cancel? See fallow job --help"),
        ("quota list", "fallow quota: no such command 'list'; did you mean fallow quota show? See fallow quota --help"),
        ("node dran n", "fallow node: no such command 'dran'; did you mean fallow node drain? See fallow node --help"),
        *(
            (f"node {word} n", f"fallow node: no such command '{word}'; did you mean fallow node {ours}? {SEE_NODE}")
            for word, ours in (
                ("undrain", "uncordon NODE"),
                ("resume", "uncordon NODE"),
                ("open", "uncordon NODE"),
                ("close", "cordon NODE"),
                ("unmaintain", "maintain NODE --cancel"),
            )
        ),
        ("node remov n", f"fallow node: no such command 'remov'; {SEE_NODE.lower()}"),
        ("jobs --user me", "fallow jobs: no such option: --user; did you mean --tenant? See fallow jobs --help"),
        ("jobs --statu x", "fallow jobs: no such option: --statu; did you mean --status? See fallow jobs --help"),
        (
            "job hold a --reason tired",
            f"fallow job hold: no such option: --reason; {NO_WORDS}; see fallow job hold --help",
        ),
        ("jobs --zzz", "fallow jobs: no such option: --zzz; see fallow jobs --help"),
        ("zzzzz", "fallow: no such command 'zzzzz'; see fallow --help"),
        *(
            (f"jobs --status {word}", f"fallow jobs: --status = '{word}': must be one of {OURS}{meant}")
            for word, meant in (
                ("pending", " (did you mean queued?)"),
                ("PENDING", " (did you mean queued?)"),
                ("Succeeded", " (did you mean finished?)"),
                ("RUNNING", " (did you mean running?)"),
                ("canceled", " (did you mean cancelled?)"),
                ("zzz", ""),
            )
        ),
        ("jobs vision/many", f"{TOO_MANY_FOR_JOBS}; see fallow jobs --help"),
        ("submit a.yaml b.yaml", f"{TOO_MANY_FOR_SUBMIT}; see fallow submit --help"),
        ("nodes n1 n2", f"{TOO_MANY_FOR_NODES}; see fallow nodes --help"),
        (
            "scontrol release 7",
            "fallow: no such command 'scontrol'; did you mean fallow job release ID? See fallow --help",
        ),
        ("scontrol 7", "fallow: no such command 'scontrol'; did you mean fallow job hold ID? See fallow --help"),
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


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        *((f"{word} 7", "submit it under a new id") for word in ("retry", "requeue", "resubmit", "scontrol requeue")),
        *((f"{word} 7", "`fallow submit FILE --wait`") for word in ("wait", "watch", "job 7 --follow", "job 7 -f")),
        ("scontrol update 7", "`fallow job scale ID WORKERS`"),
        ("alerts", "docs/operations.md (When something is wrong)"),
    ],
)
def test_what_no_command_does_is_told_with_its_way(
    typed: str, way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fallow", *typed.split()])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    assert way in told
    assert "did you mean" not in told


def test_every_page_that_is_named_has_what_is_promised() -> None:
    docs = Path(__file__).parents[3] / "docs"
    operations = (docs / "operations.md").read_text(encoding="utf-8")
    assert "## When something is wrong" in operations
    assert "### Take a node out" in operations
    assert "docs/operations.md, Take a node out" in EMPTY
    assert "docs/operations.md, Take a node out" in STOP_IT
    assert "new id" in (docs / "coming-from.md").read_text(encoding="utf-8")


def test_every_command_that_is_told_is_one() -> None:
    told = [
        *ELSEWHERE.values(),
        *SCONTROL.values(),
        *KINDS.values(),
        *(found for group in IN_GROUPS.values() for found in group.values()),
    ]
    for words in told:
        names = [word for word in words.split() if word.islower() and not word.startswith("-")]
        assert " ".join(names) in {*LEAVES, "job"}, words  # `job ID` is short for `job show ID`


def test_every_status_that_is_told_is_one() -> None:
    assert {*STATUSES.values()} <= {*JobStatus}
    assert {*STATUSES}.isdisjoint(JobStatus)


def test_no_word_of_our_own_is_taken_for_one_of_others() -> None:
    assert [word for word in (*ELSEWHERE, *WAYS) if word in COMMANDS] == []
    assert [(group, word) for group, words in IN_GROUPS.items() for word in words if f"{group} {word}" in LEAVES] == []


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["quota", "set", "vision", "8"], "--limit 8"),
        (["quota", "set", "vision", "h100", "--limit", "24"], "a GPU type is given by an option: --gpu-type h100"),
        (["policy", "set", "placement", "e-binpack"], "placement=e-binpack"),
        (["policy", "set", "placement"], "placement=VALUE"),
        (["policy", "set", "placement", "backfill_wait_ms=1s"], "placement=VALUE"),
        (["submit", "job.yaml", "--array", "0-19"], "must be a number of elements from 1 to 1000, such as 20"),
        (["submit", "job.yaml", "--array", "0"], "must be a number of elements from 1 to 1000, such as 20"),
    ],
)
def test_a_value_that_has_another_form_here_is_told_that_form(
    typed: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fallow", *typed])
    with pytest.raises(SystemExit):
        main()
    assert told in capsys.readouterr().err
