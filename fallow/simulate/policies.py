"""A policy as a user names it: how queues let jobs pass, in which order, a way to place, or several of these."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.cli.errors.failures import refuse
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.value import replace
from fallow.shared.events.queue import QueueDiscipline, QueueOrder

DISCIPLINES = tuple(each.value for each in QueueDiscipline)
ORDERS = (QueueOrder.FAIR_SHARE.value,)

HALF_LIFE_MS = 7 * 86_400_000
"""For fair shares, where the cell file has none."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How queues let jobs past each other, in which order, and a way to place, as a user names them: `strict-fifo`,
    `fair-share`, `best-fit`, or several with a `+`. What is not named stays as the cell file has it.
    """

    name: str
    discipline: QueueDiscipline | None
    placement: str | None
    order: QueueOrder | None = None

    def on(self, file: CellFile) -> CellFile:
        """The cell file under this policy."""
        part = file.cells[0]
        queues, policy = part.queues, part.policy
        if self.discipline is not None:
            queues = tuple(queue.model_copy(update={"discipline": self.discipline}) for queue in queues)
        if self.order is not None:
            queues = tuple(queue.model_copy(update={"order": self.order}) for queue in queues)
        if self.order is QueueOrder.FAIR_SHARE and not policy.fair_half_life_ms:
            policy = replace(policy, fair_half_life_ms=HALF_LIFE_MS)
        if self.placement is not None:
            policy = replace(policy, placement=self.placement)
        cell = part.model_copy(update={"queues": queues, "policy": policy})
        return file.model_copy(update={"cells": (cell,)})


def policy_of(name: str) -> Policy:
    """The policy that a user names. Ends the command where there is none of that name."""
    discipline: QueueDiscipline | None = None
    placement: str | None = None
    order: QueueOrder | None = None
    for part in name.split("+"):
        if part in DISCIPLINES and discipline is None:
            discipline = QueueDiscipline(part)
        elif part in ORDERS and order is None:
            order = QueueOrder(part)
        elif part in POLICIES and placement is None:
            placement = part
        else:
            known = ", ".join((*DISCIPLINES, *ORDERS, *POLICIES))
            refuse("--policy", name, f"{part[:40]!r} is none of {known}")
    return Policy(name, discipline, placement, order)
