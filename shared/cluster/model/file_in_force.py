"""The cell file as the log holds it: whole, as JSON, so that a writer that takes the cell over goes by the same one."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from pydantic import ValidationError

from fallow.shared.cluster.model.config import CellFile, CellPart, Queue
from fallow.shared.cluster.quota.waiting_limits import WaitingLimits
from fallow.shared.events.effects import CellFileSet, ProposalRefused
from fallow.shared.events.fields.value import FROM_LOG
from fallow.shared.events.reasons import ProposalCode
from fallow.shared.events.validation.mistakes_told import first_told

DIGEST_BYTES = 16

CELL_FILE = "cell-file"
"""How a refusal names a cell file. A node may be called so too."""


def as_effect(file: CellFile) -> CellFileSet:
    """What puts the file in force."""
    content = file.content()
    return CellFileSet(digest=digest_of(content), content=content)


def refuses_file(effect: ProposalRefused) -> bool:
    """Whether a part of a cell file does not come into force. What is asked of a node is refused under the node, which
    may be called as it likes, and by another code.
    """
    return effect.proposal == CELL_FILE and effect.code is ProposalCode.NOT_ALLOWED


def digest_of(content: str) -> str:
    """The name of a cell file: equal for files that say the same."""
    return blake2b(content.encode(), digest_size=DIGEST_BYTES).hexdigest()


def from_effect(effect: CellFileSet) -> CellFile:
    """The file again, whatever it names that is more than may be asked for now. Raises ValueError for what another
    release may have written and this one cannot read: field, value and rule, in one line.
    """
    return _file(effect.content)


def _file(content: str) -> CellFile:
    file, mistake = _read(content)
    if file is None:
        raise ValueError(mistake)
    return file


@lru_cache(maxsize=16)
def _read(content: str) -> tuple[CellFile | None, str]:
    """The file, or None and why it is none. Read once, however often one asks: a file with thousands of tenants takes
    long, one with thousands of mistakes longer, and files cannot be changed.
    """
    try:
        return CellFile.model_validate_json(content, context=FROM_LOG), ""
    except ValidationError as error:
        return None, first_told(error.errors(include_url=False))


def part_in_force(effect: CellFileSet | None, own: CellPart) -> CellPart:
    """What the file in force says of a cell; `own` where there is none, or none that this release can read: the writer
    of the cell tells of that.
    """
    if effect is None:
        return own
    try:
        return from_effect(effect).cell(own.name)
    except (ValueError, KeyError):
        return own


def queue_in_force(effect: CellFileSet | None, cell: str, name: str) -> Queue:
    """A cell's queue as the file in force has it; one with the defaults where that names none, or cannot be read."""
    queues = {} if effect is None else _queues(effect.content, cell)
    return queues.get(name) or Queue(name=name or "default")


def waiting_limits_in_force(effect: CellFileSet | None) -> WaitingLimits | None:
    """How many jobs of each tenant may wait by the file in force; None where there is none, or it cannot be read."""
    try:
        return None if effect is None else WaitingLimits(from_effect(effect))
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _queues(content: str, cell: str) -> dict[str, Queue]:
    """The queues of a cell by name, in a cell file as the log holds it; the first one also for jobs that name none."""
    try:
        queues = _file(content).cell(cell).queues
    except (ValueError, KeyError):
        return {}
    return {"": queues[0], **{queue.name: queue for queue in queues}}


def difference(one: CellFile, other: CellFile, cell: str) -> str:
    """In which parts two files differ, as far as it matters to this cell."""
    mine, theirs = one.cell(cell), other.cell(cell)
    parts = [
        f"{cell}.{part}"
        for part in ("pools", "queues", "policy", "signing")
        if getattr(mine, part) != getattr(theirs, part)
    ]
    parts += [part for part in ("tenants", "limits", "retention_hours") if getattr(one, part) != getattr(other, part)]
    return ", ".join(parts) or "other cells"
