"""`fallow log repair`: from a lost tail or a damaged log back to a cell that runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.user_name import user_name
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.log.repairing import From, NotRepairable, Survey, not_due, repair, survey
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import Sign
from fallow.shared.log.port import Log
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.settings import WriterSecurity

WHAT_NEXT = (
    "Nothing was changed. Stop the cell's services, then repair it with --yes.",
    "Under `fallow up`: end it, run `fallow up --servers-only` on the same --data, and repair in another terminal.",
)

NONE_LEADS = "No record of it leads to a state: the topic was emptied or made anew, or its first records are damaged."

BEGINS_ANEW = (
    "A repair begins the cell anew and gives these snapshots up: jobs that have ended may run again, and what "
    "operators have set is lost."
)


def log_repair(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Repair; without it only what was found is shown.")] = False,
    inputs: Annotated[
        From | None, typer.Option("--inputs", help="From where inputs that have lost records are read on.")
    ] = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Show which part of a cell's log is intact. With --yes, repair it by a record that says so.

    Stop the cell's services before, and start them again behind it; instead of `fallow up` run `fallow up
    --servers-only` meanwhile.
    """
    access = access_of(context)
    try:
        is_whole, version = run(_repair(access, access.cell(cell), inputs, yes=yes, as_json=as_json))
    except NotRepairable as error:
        end_with(Exit.NO, f"fallow: {error}")
    if version is not None and not as_json:
        print_sentence(f"Repaired: the cell goes on at version {version}. Start its services now.")
    elif not is_whole and not as_json:
        for line in WHAT_NEXT:
            print_sentence(line)
    if version is None and not is_whole:
        raise typer.Exit(Exit.NO)


async def _repair(
    access: Access, cell: str, inputs: From | None, *, yes: bool, as_json: bool
) -> tuple[bool, int | None]:
    """Whether the log was whole, and the version behind the repair where there was one."""
    log = KafkaLog(access.kafka_access, "fallow-repair")
    await log.start()
    try:
        return await look_and_repair(log, access.layout(), cell, inputs, yes=yes, as_json=as_json)
    finally:
        await log.stop()


async def look_and_repair(
    log: Log, layout: Layout, cell: str, inputs: From | None, *, yes: bool, as_json: bool
) -> tuple[bool, int | None]:
    """Show what the log holds; with `yes`, repair it. Whether it was whole, and the version behind the repair."""
    found = await survey(log, layout, cell)
    is_whole, told, version = found.is_whole, as_object(found), None
    if not as_json:
        for line in lines_of(found):
            print_sentence(line)
    if yes and not is_whole:
        sign = signature_for(layout, cell)
        state = await repair(log, layout, found, inputs, by=user_name(), wall_ms=wall_ms(), sign=sign)
        version = state.version
    if as_json:
        print_json({**told, "repaired_version": version})
    return is_whole, version


def signature_for(layout: Layout, cell: str) -> Sign | None:
    """What signs the record of the repair; None where the cell has no keys. Raises NotRepairable where the private key
    is missing here, or is none of the cell's; SettingsError.
    """
    keys = layout.signers.of(cell)
    if keys is None:
        return None
    from fallow.shared.log.keys.ed25519 import SigningKey  # noqa: PLC0415 - megabytes, which no cell without keys needs

    text = WriterSecurity.load().signing_key.get_secret_value()
    key = SigningKey.read(text) if text else None
    if key is None or not keys.may_write(key.public):
        which = "there is none" if key is None else f"{key.public} is none of them"
        rule = f"FALLOW_SIGNING_KEY has to be one of its keys, and {which}: run it with placement's secrets"
        raise NotRepairable(f"the decisions of cell {cell} are signed: {rule}")
    return key.sign


def lines_of(found: Survey) -> list[str]:
    """The survey for people."""
    state = found.state
    lines = [
        _holds(found),
        NONE_LEADS if found.is_emptied else _good_to(state.version, state.offset),
    ]
    if found.damage:
        lines.append(f"Damaged: {found.damage}.")
    if found.base is not None:
        lines.append(_goes_on(found, found.base))
    lines += [
        f"Snapshot {m.snapshot} ({m.slot}) is of version {m.version} at offset {m.offset}, which {_is_void(found, m)}."
        for m in found.contradicting
    ]
    if state.version <= 0 and found.contradicting:
        lines.append(BEGINS_ANEW)
    lines += _given_up(found)
    lines += [f"{loss}." for loss in found.losses.values()]
    lines += [
        f"{source}: {counted(count, 'offset')} before that are still to be read: start the services first."
        for source, count in not_due(found).items()
    ]
    lines += ["Nothing is to be repaired."] if found.is_whole else found.keys
    return lines


def _given_up(found: Survey) -> list[str]:
    """What a repair gives up of a log that counts: decisions that snapshots tell of, and records behind the damage."""
    if found.is_emptied:
        return []
    version, lines = found.state.version, list[str]()
    told = max((manifest.version for manifest in found.contradicting if manifest.cell == found.cell), default=0)
    if told > version:
        lost = counted(told - version, "decision")
        lines.append(
            f"Snapshots tell of versions up to {told}: {lost} at least behind version {version} are given up, and a "
            "job that ended in them runs again."
        )
    if found.cut_offset is not None:
        what = f"A repair gives up offsets {found.cut_offset} to {found.end - 1}"
        lines.append(
            f"{what}, and deletes all before offset {found.end}: a snapshot of version {version} replaces them."
        )
    return lines


def _is_void(found: Survey, manifest: SnapshotManifest) -> str:
    """Why a repair makes a snapshot void."""
    if manifest.cell != found.cell:
        return f"names cell {shorten(manifest.cell)}"
    if manifest.offset >= found.end:
        return "the log does not reach"
    return "a new one replaces" if found.is_emptied else "the log contradicts"


def _good_to(version: int, offset: int) -> str:
    """Up to where readers that begin at the log's begin, or with a snapshot before the damage, can go."""
    if version <= 0:
        return "No version of it is good."
    return f"The last good version is {version}, at offset {offset}: all decisions up to it are whole."


def _goes_on(found: Survey, base: SnapshotManifest) -> str:
    """What stands behind the damage, or beyond the log, and is whole."""
    if found.is_emptied:
        what = f"A repair goes on from the snapshot of version {base.version}, the newest whole one"
        return f"{what}: what was decided behind it is given up, and a job that has ended since may run again."
    what = f"The snapshot of version {base.version} at offset {base.offset} is whole, and the log continues it"
    if found.cut_offset is None:
        return f"{what} to its end: nothing is given up but the records before it."
    return f"{what} up to offset {found.cut_offset}."


def _holds(found: Survey) -> str:
    """`end` is the offset that the next record gets."""
    if found.begin >= found.end:
        return f"The log of cell {found.cell} holds no record."
    return f"The log of cell {found.cell} holds offsets {found.begin} to {found.end - 1}."


def as_object(found: Survey) -> dict[str, Any]:
    """The survey for programs."""
    return {
        "cell": found.cell,
        "begin": found.begin,
        "end": found.end,
        "good_version": found.state.version,
        "good_offset": found.state.offset,
        "damage": found.damage or None,
        "damage_offset": found.damage_offset,
        "base_version": None if found.base is None else found.base.version,
        "base_offset": None if found.base is None else found.base.offset,
        "snapshots": [
            {"snapshot": m.snapshot, "slot": m.slot, "version": m.version, "offset": m.offset}
            for m in found.contradicting
        ],
        "inputs": [
            {
                "input": source,
                "kind": loss.kind.value,
                "read_to": loss.next_offset,
                "begin": loss.begin,
                "end": loss.end,
            }
            for source, loss in found.losses.items()
        ],
        "whole": found.is_whole,
    }
