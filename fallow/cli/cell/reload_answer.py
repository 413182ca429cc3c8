"""What the log of a cell says of a reload of its cell file, held against the file that was to be put in force."""

from __future__ import annotations

from collections.abc import Collection

from fallow.cli.errors.failures import Exit
from fallow.cli.errors.unanswered import unread_about
from fallow.shared.client.port import News
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import as_effect, difference, from_effect, refuses_file
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.effects import CellFileSet, PolicySet, ProposalRefused, QuotaRemoved, QuotaSet
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import Quota
from fallow.shared.near import first_named, listed

FILE, POLICY = "file", "policy"
"""What a reload may change, beside the quotas."""

REFUSALS_NAMED_MAX = NAMED_MAX = 3

NOT_READ = "placement has not read the request yet: is it ready (`/readyz`)?"
OTHER_COPY = (
    "placement has read its own copy of the file again, and that is another one, or has an error; its log names it. "
    "Make the change there, or start the services with this file (FALLOW_CELL_FILE)"
)

QUIET_MS = 2_000
"""A file that is in force already gets no answer: after so long without one nothing more is to come."""


def obstacle(file: CellFile, state: CellState) -> str:
    """Why the services would not take this file, or "": they keep the cells with which they started."""
    rule = "a reload keeps the cells and their ordinals; to change them, restart the services"
    in_force = _read(state.cell_file)
    if in_force is not None and _cells(in_force) != _cells(file):
        return f"cells = {_cells(file)!r}: in force are {_cells(in_force)}: {rule}"
    if not state.version:
        return f"cells = {_cells(file)!r}: cell {state.cell} has not begun: {rule}"
    return ""


class ReloadAnswer:
    """One cell on its way to a file: begun with its state before the reload, and told what has happened since."""

    def __init__(self, file: CellFile, name: str, state: CellState) -> None:
        """`name` is what messages call the file."""
        self.cell = state.cell
        self.version: int | None = None
        self._file, self._name = file, name
        self._wanted, self._before, self._now = as_effect(file), state.cell_file, state.cell_file
        self._policy = file.cell(state.cell).policy
        self._quotas = {(quota.tenant, quota.gpu_type): quota for quota in file.quotas()}
        self._open: dict[str | Account, None] = {} if self._is_wanted(self._before) else {FILE: None}
        self._open |= {} if state.policy == self._policy else {POLICY: None}
        self._open |= {at: None for at, quota in self._quotas.items() if state.quotas.get(at) != quota}
        self._was_so_before = not self._open
        self._read_ms: int | None = None
        self._has_passed_over = False
        self._refusals: list[str] = []
        self._dropped = {at: quota for at, quota in state.quotas.items() if at not in self._quotas}
        self._tenants = frozenset(tenant.name for tenant in file.tenants)
        self._changed: dict[Account, None] = {}
        self._is_policy_changed = False
        names, before = self._policy.__struct_fields__, state.policy
        self._settings = [name for name in names if getattr(self._policy, name) != getattr(before, name)]
        self._removed: dict[Account, None] = {}
        self._lifted: dict[Account, None] = {}
        self._left: dict[Account, None] = {}

    def take(self, news: News) -> None:
        """Something that has happened in the cell since the reload was asked for."""
        event = news.event
        if isinstance(event, CellFileSet):
            # It comes last: what is open by then was refused, and the refusal stands before it.
            self._now, self._open = event, {}
        elif isinstance(event, PolicySet) and event.policy == self._policy:
            self._is_policy_changed = bool(self._settings)
            self._open.pop(POLICY, None)
        elif isinstance(event, QuotaSet) and event.quota == self._quotas.get(account := _account(event)):
            if account in self._open:
                self._changed[account] = None
            self._open.pop(account, None)
        elif isinstance(event, QuotaSet) and event.of_file and (account := _account(event)) in self._dropped:
            self._note_lesser(account, event.quota)
        elif isinstance(event, QuotaRemoved) and (account := (event.tenant, event.gpu_type)) in self._dropped:
            self._lifted.pop(account, None)
            self._left.pop(account, None)
            self._removed[account] = None
        elif isinstance(event, ProposalRefused) and refuses_file(event):
            self._refusals.append(event.text)
        else:
            return
        self.version = news.version

    def _note_lesser(self, account: Account, quota: Quota) -> None:
        """A quota that the file does not have comes to say less, or to stand elsewhere alone."""
        before = self._dropped[account]
        if replace(before, parent=quota.parent) != quota:
            (self._lifted if account[0] in self._tenants else self._left)[account] = None

    def is_read(self, waited_ms: int) -> None:
        """The cell has taken in the request, as was seen after so long a wait."""
        self._read_ms = waited_ms

    def passes_over(self) -> None:
        """Decisions since the reload was asked for were passed over, since no key of the file proves them."""
        self._has_passed_over = True

    @property
    def digest_before(self) -> str | None:
        """The name of the file by which the cell went when the reload was asked for."""
        return None if self._before is None else self._before.digest

    def is_over(self, waited_ms: int) -> bool:
        """Whether nothing more is to be expected."""
        if self._is_other or self._is_unread:
            return self._is_other
        if not self._open and not self._was_so_before:
            return True
        if self._is_still_other and self._read_ms is not None:
            return waited_ms >= self._read_ms + QUIET_MS
        may_be_all = self._was_so_before or (self._refusals and FILE not in self._open)
        return bool(may_be_all) and waited_ms >= QUIET_MS

    @property
    def code(self) -> Exit:
        """0 if the cell goes by the file, 1 if it does not or not in all, 3 if that is not known yet."""
        if self._is_unread:
            return Exit.AWAY
        if self._is_other or self._is_still_other:
            return Exit.NO
        if FILE in self._open:
            return Exit.AWAY
        if self._refusals:
            return Exit.NO
        return Exit.AWAY if self._open else Exit.OK

    @property
    def text(self) -> str:
        """The answer in words."""
        if self._is_unread:
            return unread_about(f"cell {self.cell}", [self.cell])
        if self._is_other:
            return (
                f"cell {self.cell} goes by {_called(self._now)} now, which differs from {self._name}"
                f"{self._parts(self._now, ' in ')}: placement reads another copy of the file"
            )
        if self._is_still_other:
            return f"cell {self.cell} still goes by {self._still_by}: {OTHER_COPY}"
        if self.code is Exit.AWAY:
            return f"no answer yet from cell {self.cell}: {self._still}"
        refused = "".join(f"; refused: {text}" for text in self._refusals[:REFUSALS_NAMED_MAX])
        more = len(self._refusals) - REFUSALS_NAMED_MAX
        refused += f"; {more} more refused" if more > 0 else ""
        return f"cell {self.cell} goes by {self._name} {self._since}{self._settings_changed}{refused}"

    @property
    def _settings_changed(self) -> str:
        """The settings that were in force before and no longer are, also those that an operator set by a command."""
        text, why = "", "as jobs live or others stand below"
        if self._is_policy_changed:
            text += f"; policy as the file says: {listed(self._settings)}"
        if self._changed:
            text += f"; quotas as the file says: {_names(self._changed)}"
        if self._removed:
            text += f"; quotas removed: {_names(self._removed)}"
        if self._lifted:
            text += f"; without limit and guarantee from now on, {why}: {_names(self._lifted)}"
        if self._left:
            text += f"; without guarantee from now on, {why}, though their tenants are gone: {_names(self._left)}"
        return text

    @property
    def _is_unread(self) -> bool:
        """Whether what was read is no answer, and one may be among what was passed over."""
        is_told = self._is_other or (self._refusals and FILE not in self._open)
        return self._has_passed_over and not is_told and bool(self._open or self._was_so_before)

    @property
    def _is_other(self) -> bool:
        return self._now is not self._before and not self._is_wanted(self._now)

    @property
    def _is_still_other(self) -> bool:
        """Whether the request was read and brought nothing: a changed file would have come along with it."""
        return self._read_ms is not None and self.version is None and FILE in self._open

    def _is_wanted(self, effect: CellFileSet | None) -> bool:
        return effect is not None and effect.digest == self._wanted.digest

    @property
    def _still(self) -> str:
        if FILE not in self._open:
            left = {"its policy" if each == POLICY else "its quotas": None for each in self._open}
            return f"{self._name} is in force, all but {' and '.join(left)}"
        return f"it still goes by {self._still_by}; {NOT_READ}"

    @property
    def _still_by(self) -> str:
        return f"{_called(self._before)}, which differs from {self._name}{self._parts(self._before, ' in ')}"

    @property
    def _since(self) -> str:
        if self._was_so_before:
            return f"already ({_called(self._now)})"
        if self._is_wanted(self._before):
            return f"as before ({_called(self._now)})"
        return f"now ({_called(self._now)}{self._parts(self._before, '; changed: ')}){self._default_queue}"

    @property
    def _default_queue(self) -> str:
        """Where jobs wait from now on that name no queue, where that changes: a file may put another queue first."""
        before, now = _read(self._before), self._file.cell(self.cell).default_queue
        was = None if before is None or self.cell not in _cells(before) else before.cell(self.cell).default_queue
        if was in {None, now}:
            return ""
        return f"; jobs without a queue of their own or of their tenant wait in {now} now, no longer in {was}"

    def _parts(self, effect: CellFileSet | None, before: str) -> str:
        """In which parts the file of this effect differs; nothing where that cannot be told."""
        other = _read(effect)
        if other is None or self.cell not in _cells(other):
            return ""
        return f"{before}{difference(other, self._file, self.cell)}"

    def as_object(self) -> dict[str, object]:
        """For programs."""
        digest = None if self._now is None else self._now.digest
        is_ok = self.code is Exit.OK
        return {"cell": self.cell, "ok": is_ok, "version": self.version, "digest": digest, "answer": self.text}


def _read(effect: CellFileSet | None) -> CellFile | None:
    """The file; None where there is none, or one that this release cannot read."""
    try:
        return None if effect is None else from_effect(effect)
    except ValueError:
        return None


def _called(effect: CellFileSet | None) -> str:
    return "a cell file that its log does not hold" if effect is None else f"cell file {effect.digest[:8]}"


def _names(accounts: Collection[Account]) -> str:
    return first_named([f"{tenant}/{gpu_type}" for tenant, gpu_type in accounts], NAMED_MAX)


def _account(event: QuotaSet) -> Account:
    return event.quota.tenant, event.quota.gpu_type


def _cells(file: CellFile) -> dict[str, int]:
    return {cell.name: cell.ordinal for cell in file.cells}
