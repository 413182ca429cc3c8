"""What is fuzzed: each target takes bytes, and gives a word for what came of them. Anything raised is a finding.

The word tells inputs that led to different ends apart: those that led to a new one are learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fallow.cli.cell.archive import ArchiveError, read_archive, write_archive
from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.cli.log.file import LogFileError, write_line
from fallow.cli.output.when import duration_of, moment_of
from fallow.cli.verify.verification import DiaryError, read_diaries, verify_file
from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.fold import DamagedLog, extend
from fallow.shared.cluster.fold.rows import DamagedRow, digest_of, rows_of, state_from
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.inputs.dead_letters import EXACT, dead_letter
from fallow.shared.log.inputs.letters import letter_of, noted_replay, original_of
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.machine.snapshot import Collector, DamagedSnapshot, RowsDigest, cut, manifest_of, state_of
from fallow.shared.log.port import Record
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from tests.cli.worlds.logs import an_honest_log
from tests.histories import History

GOLDEN = Path(__file__).parents[1] / "events" / "golden"
CORPUS = Path(__file__).parent / "corpus"
RULE_CHARS_MAX = 1_000
WORD_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that takes bytes from elsewhere. `share`: how often it is drawn, by what it costs and guards. `taken`:
    what its words about good inputs hold, each part those about some seed.
    """

    name: str
    run: Callable[[bytes], str]
    seeds: tuple[bytes, ...] = field(repr=False)
    share: int
    taken: tuple[str, ...]
    lines: bool = False


def corpus_of(name: str, seeds: Iterable[bytes] = ()) -> tuple[bytes, ...]:
    """Good inputs, and those that are kept because they were bad once."""
    kept = sorted((CORPUS / name).glob("*")) if (CORPUS / name).is_dir() else []
    return (*seeds, *(path.read_bytes() for path in kept))


def one_line(text: str) -> str:
    """A short word of an error, which must be one line of a bounded length."""
    assert text, "an error without a word"
    assert "\n" not in text, f"an error of several lines: {text!r}"
    assert len(text) <= RULE_CHARS_MAX, f"an error of {len(text)} characters"
    return text[:WORD_CHARS_MAX]


# Records.


def as_event(type_: str, value: bytes) -> str:
    found = decode(type_, value)
    if isinstance(found, Undecodable):
        one_line(str(found))
        return f"{found.reason} {found.field.split('.')[-1]} {found.rule[:WORD_CHARS_MAX]}"
    again(found)
    return "an event"


def again(event: Event) -> None:
    """What was read can be written, and is then read as the same."""
    text = encode(event)
    found = decode(event.type, text)
    assert found == event, f"{event!r} is read back as {found!r}"
    assert encode(event) == text
    event.key().encode()


def event_targets() -> list[Target]:
    lives = [encode(History(seed).decide()) for seed in range(1)]
    history = History(7)
    lives += [encode(decision) for decision in history.decisions(60)]
    targets = []
    for type_, cls in sorted(TYPES.items()):
        seeds: Sequence[bytes] = [(GOLDEN / f"{type_}.json").read_bytes().strip(), *(lives if cls is Decision else ())]
        outside = cls.topic in ("submissions", "operations", "nodes")
        share = 40 if outside or cls is Decision else 15
        targets.append(
            Target(f"decode-{type_}", partial(as_event, type_), corpus_of(type_, seeds), share, ("an event",))
        )
    return targets


HEADERS = ("ce_type", "service", "reason", "origin_topic", "origin_partition", "origin_offset", "value_bytes", EXACT)
"""What a record is given, in this order, before the note of a replay."""


def as_record(value: bytes) -> str:
    """A record with headers of any bytes, as it would come from a topic, and as a dead letter."""
    text, *parts = value.split(b"\x00")
    headers = tuple((name, part) for name, part in zip((*HEADERS, "replayed_offset"), parts, strict=False) if part)
    found = event_of(Record("t.submissions", 0, 0, text[:5], text, headers, 0))
    record = Record("t.dead-letters", 0, 0, text[:5], text, headers, 0)
    letter = letter_of(record)
    noted_replay(record)
    return f"{type(found).__name__} {type(original_of(letter, 't')).__name__}"


def record_seeds() -> list[bytes]:
    """A record from a topic, and the letters of two: what stands in headers tells one of them in full."""
    value, seeds = (GOLDEN / f"{SubmitJob.type}.json").read_bytes().strip(), list[bytes]()
    for key, more in ((b"key", ()), (b"\xff", (("odd", b"\xfe"),))):
        record = Record("t.submissions", 3, 7, key, value, (("ce_type", SubmitJob.type.encode()), *more), 1)
        letter = dead_letter(Dead(record, DeadLetterReason.INVALID, "text"), service="admission", namespace="t")
        found = dict(letter.headers) | {"ce_type": SubmitJob.type.encode()}
        seeds.append(b"\0".join((value, *(found.get(name, b"") for name in HEADERS))))
    return [value + b"\0" + SubmitJob.type.encode(), *seeds]


# Submissions.

CELL_TEXT = """
cells:
  - name: main
    ordinal: 0
    pools: [{name: training, gpus: 64}, {name: lend, gpus: 8, role: inference, gpu_type: a100}]
    queues: [{name: default}, {name: late, discipline: strict-fifo}]
tenants:
  - {name: vision, pools: [training], quotas: [{gpu_type: gpu, limit: 32}]}
  - {name: speech, parent: vision, own_topic: true}
"""


def admission_target() -> Target:
    service = AdmissionService(parse_cell_file(CELL_TEXT, "cell"))
    types = (SubmitJob.type, CancelJob.type, UpdateJob.type, "fallow.job.submit.v9", "x")

    def answer(value: bytes) -> str:
        words = []
        for type_ in types:
            tenant = None if len(value) % 3 else "speech"
            found = service.answer(type_, value, tenant, 1_000_000)
            if isinstance(found, Undecodable):
                words.append(one_line(str(found))[:20])
            else:
                again(found)
                words.append(type(found).__name__ + getattr(found, "code", ""))
        return " ".join(words)

    seeds = [(GOLDEN / f"{type_}.json").read_bytes().strip() for type_ in types[:3]]
    seeds.append(b'{"job":{"id":"a","tenant":"vision","workers":2,"resources":{"gpu_milli":8000}}}')
    seeds.append(b'{"job":{"id":"b","tenant":"speech"}}')
    seeds.append(b'{"job":"a","tenant":"speech" }')  # of these lengths it comes by the own topic
    seeds.append(b'{"job":"a","tenant":"speech","changes":{"priority":1,"max_run_ms":60000}}  ')
    taken = ("JobAdmitted", "JobCancelRequested", "JobUpdateRequested")
    return Target("admission", answer, corpus_of("admission", seeds), 250, taken)


# The log and its state.


def fold_target() -> Target:
    """A decision that was never made, folded: refused whole, or the state behind it is a right one."""
    history = History(11)
    for _ in range(60):
        history.decide()
    state = history.state
    inputs = dict(state.inputs)
    digest = digest_of(state)
    own = (state.version, state.chain, state.at_ms, state.offset)
    fair = deepcopy(state.fair)
    seeds = []
    for _ in range(40):
        mark = state.checkpoint()
        seeds.append(encode(history.decide()))
        state.rollback(mark)
        state.version, state.chain, state.at_ms, state.offset = own
        state.inputs, state.fair = dict(inputs), deepcopy(fair)
    assert digest_of(state) == digest, "the seeds were drawn without a trace"

    def folded(value: bytes) -> str:
        decision = decode(Decision.type, value)
        if not isinstance(decision, Decision):
            return "undecodable"
        mark = state.checkpoint()
        try:
            extend(state, decision, "x")
            word = "extends"
            # That no record leaves a job in the middle of its way is for who recounts: a fold tests each effect alone.
            offences = [offence for offence in check_state(state) if "rests in" not in offence.text]
        except DamagedLog as error:
            word, offences = str(error).split(":")[-1][:30], []
        state.rollback(mark)
        state.version, state.chain, state.at_ms, state.offset = own
        state.inputs, state.fair = dict(inputs), deepcopy(fair)
        assert offences == [], f"a fold that breaks {offences[0]}"
        assert digest_of(state) == digest, "an undone fold left something behind"
        return word

    return Target("fold", folded, corpus_of("fold", seeds), 4, ("extends",))


def snapshot_target() -> Target:
    """Rows that no service wrote, vouched for by a right digest."""
    state = an_honest_log().state
    seeds = ["\n".join(rows_of(state)).encode(), "\n".join(rows_of(living())).encode()]

    def read(value: bytes) -> str:
        rows = tuple(value.decode("utf-8", "replace").split("\n"))
        digest = RowsDigest()
        digest.add(rows)
        collector = Collector()
        for chunk in cut(state, "s"):
            collector.add_chunk(type(chunk)(cell=state.cell, snapshot="s", part=chunk.part, rows=rows))
        collector.add_manifest(manifest_of(state, "s", slot="newest", parts=1, digest=digest.hexdigest()))
        if collector.newest is None:
            return "torn"
        try:
            found = state_of(collector.newest)
        except DamagedSnapshot as error:
            return one_line(str(error))
        return f"a state {len(found.jobs)}"

    def plain(value: bytes) -> str:
        try:
            return f"a state {len(state_from(value.decode('utf-8', 'replace').splitlines()).jobs)}"
        except DamagedRow as error:
            return one_line(str(error))[:20]

    def both(value: bytes) -> str:
        return f"{read(value)} {plain(value)}"

    return Target("snapshot", both, corpus_of("snapshot", seeds), 12, ("a state 2",), lines=True)


def living() -> CellState:
    """A state with a bit of everything."""
    history = History(3)
    history.decisions(120)
    return history.state


# Files.


JOBS = b"- {id: a, workers: 2, resources: {gpu_milli: 2000}}\n- {id: b, after: [{job: a}]}\n"


TIMES = (b"2026-03-01 12:30", b"day 3 07:15:01.5", b"10min")


def file_targets(folder: Path) -> list[Target]:
    """What the command line reads; `folder` is where the inputs are put."""
    log, jobs = folder / "log", (GOLDEN / "fallow.job.submit.v1.json").read_bytes()

    def exported(value: bytes) -> str:
        log.write_bytes(value)
        try:
            found = verify_file(log)
        except LogFileError as error:
            return one_line(str(error).removeprefix(str(log)))
        return "ok" if found.first_violation is None else found.first_violation.invariant

    def archived(value: bytes) -> str:
        log.write_bytes(value)
        try:
            return f"a cell {read_archive(log).head.version}"
        except ArchiveError as error:
            return one_line(str(error).removeprefix(str(log)))

    def diary(value: bytes) -> str:
        (folder / "n.jsonl").write_bytes(value)
        try:
            return f"{len(list(read_diaries(folder)))} lines"[:9]
        except DiaryError as error:
            return one_line(str(error).removeprefix(str(folder)))

    line = b'{"wall_ms":1,"cell_ms":1,"node":"n","boot":"n.1","event":"started","job":"a","attempt":1,"devices":[0]}\n'
    return [
        Target("log-file", exported, corpus_of("log-file", [log_file(folder)]), 4, ("ok",), lines=True),
        Target("cell-archive", archived, corpus_of("cell-archive", [archive_file(folder)]), 4, ("a cell",), lines=True),
        Target("diary", diary, corpus_of("diary", [line * 2]), 10, ("2 lines",), lines=True),
        Target("cell-file", cell_file, corpus_of("cell-file", [CELL_TEXT.encode(), b"cells: []\n"]), 1, ("1 cells",)),
        Target("job-file", job_file, corpus_of("job-file", [jobs, JOBS]), 2, ("True jobs",)),
        Target(
            "words",
            words,
            corpus_of("words", [b"2026-03-01 12:30", b"day 3 07:15:01.5", b"10min"]),
            20,
            ("False True", "True False"),
        ),
        Target("record", as_record, corpus_of("record", record_seeds()), 20, ("SubmitJob", "Outgoing", "Lost")),
    ]


def log_file(folder: Path) -> bytes:
    path = folder / "seed"
    records = an_honest_log().records
    with path.open("w", encoding="utf-8") as output:
        for record in records:
            write_line(output, record, len(records))
    return path.read_bytes()


def archive_file(folder: Path) -> bytes:
    path = folder / "seed"
    write_archive(path, living(), ())
    return path.read_bytes()


def cell_file(value: bytes) -> str:
    try:
        found: CellFile = parse_cell_file(value.decode("utf-8", "replace"), "f")
    except CellFileError as error:
        return one_line(str(error).split("\n", maxsplit=1)[0])[:25]
    return f"{len(found.cells)} cells"


def job_file(value: bytes) -> str:
    try:
        return f"{len(read_jobs(value.decode('utf-8', 'replace'), 'f', 'vision')) > 1} jobs"
    except JobFileError as error:
        return one_line(str(error).split("\n", maxsplit=1)[0])[:30]


def words(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return f"{moment_of(text) is None} {duration_of(text) is None}"


def all_targets(folder: Path) -> list[Target]:
    return [
        *event_targets(),
        admission_target(),
        fold_target(),
        snapshot_target(),
        *file_targets(folder),
    ]
