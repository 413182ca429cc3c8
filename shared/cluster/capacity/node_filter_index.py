"""Which nodes of a pool meet a job's constraints: bit masks over the pool's numbers, kept by delta.

The nodes that keep a label rule, tolerate some taints or are of a zone are a mask, and what several constraints leave
over is an AND of masks. What that costs goes by the values that rules name and by the forms of nodes, which are few,
and not by the size of the pool. Which nodes are empty is kept likewise.

Nobody pays who does not ask: a pool in which no job has constraints and no node has taints has no such index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import Needs, is_general, tolerates
from fallow.shared.cluster.capacity.first_kept import FirstKept
from fallow.shared.cluster.capacity.labels import Labels
from fallow.shared.cluster.capacity.maintenance import shut_for
from fallow.shared.cluster.capacity.masks import mask_from
from fallow.shared.cluster.model.node import ZONE_LABEL, ZONE_NAME, Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobKind, JobSpec, NodeRole, NodeSpec

MEMBERS_MAX = 256
"""So many needs have the nodes that suit them remembered."""

MARKS = "marks"
"""The name of this view of a pool."""

Test = Callable[[Node], bool]
"""Whether a node is of some kind, by its role, its loan and whether its labels put it into the inference zone."""

LOOKS_FOR_RULE = 2
"""To find the nodes that keep a rule takes so long as to look at so many."""

_tested = attrgetter("labels", "taints", "role")
"""What of a node's specification constraints look at."""

Form = tuple[tuple[str, ...], NodeRole, bool, bool]
"""A node's taints, and all that a test may look at."""


def _form(node: Node) -> Form:
    spec = node.spec
    return spec.taints, spec.role, spec.labels.get(ZONE_LABEL) == ZONE_NAME, node.lent_to is not None


@dataclass(slots=True)
class NodeFilterIndex:
    """The index over one pool. `empty` are the nodes without any job."""

    pool: PoolCapacity
    specs: list[NodeSpec]
    empty: int
    is_stale: bool = False
    _is_empty: bytearray = field(default_factory=bytearray)
    _members: FirstKept[tuple[Needs | None, object], int] = field(default_factory=lambda: FirstKept(MEMBERS_MAX))
    _labels: Labels | None = None
    """What labels the nodes have, once somebody has asked for a rule."""
    _forms: dict[Form, int] | None = None
    """The nodes of each form, once somebody has asked for a test."""
    _form_of: list[Form] = field(default_factory=list)
    _taints: Counter[str] | None = None
    """How many nodes have each taint, once somebody has asked."""

    @classmethod
    def of(cls, pool: PoolCapacity, nodes: list[Node]) -> NodeFilterIndex:
        """The index over the pool's nodes, in their order, counted from nothing."""
        is_empty = bytearray(not node.is_used for node in nodes)
        return cls(
            pool,
            [node.spec for node in nodes],
            mask_from((at for at, empty in enumerate(is_empty) if empty), len(nodes)),
            _is_empty=is_empty,
        )

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        number = self.pool.number(node.spec.id)
        if (not node.is_used) != self._is_empty[number]:
            self._is_empty[number] ^= 1
            self.empty ^= 1 << number
        before = self.specs[number]
        if node.spec is not before:
            if _tested(node.spec) != _tested(before):
                self._see(node, number, before)
            self.specs[number] = node.spec

    def _see(self, node: Node, number: int, before: NodeSpec) -> None:
        """The node suits others than before."""
        self._members.clear()
        if self._labels is not None:
            self._labels.change(number, before.labels, node.spec.labels)
        if self._forms is not None:
            self._move(number, _form(node))
        if self._taints is not None:
            self._taints.subtract(before.taints)
            self._taints.update(node.spec.taints)

    def _move(self, number: int, form: Form) -> None:
        assert self._forms is not None, "they were asked for"
        before = self._form_of[number]
        left = self._forms[before] ^ 1 << number
        if left:
            self._forms[before] = left
        else:
            del self._forms[before]
        self._forms[form] = self._forms.get(form, 0) | 1 << number
        self._form_of[number] = form

    def _by_form(self, state: CellState) -> dict[Form, int]:
        if self._forms is None:
            self._form_of = [_form(state.nodes[spec.id]) for spec in self.specs]
            numbers: dict[Form, list[int]] = {}
            for number, form in enumerate(self._form_of):
                numbers.setdefault(form, []).append(number)
            self._forms = {form: mask_from(alike, len(self.specs)) for form, alike in numbers.items()}
        return self._forms

    def passing(self, state: CellState, test: Test) -> int:
        """The nodes that pass a test. Nodes of one form are tested once for all."""
        found, forms = 0, self._by_form(state)
        self.pool.effort.looks += len(forms)
        for alike in forms.values():
            first = self.specs[(alike & -alike).bit_length() - 1]
            found |= alike if test(state.nodes[first.id]) else 0
        return found

    def tolerating(self, state: CellState, tolerations: tuple[str, ...]) -> int:
        """The nodes all of whose taints are among these."""
        found, forms = 0, self._by_form(state)
        self.pool.effort.looks += len(forms)
        for form, alike in forms.items():
            found |= alike if tolerates(tolerations, form[0]) else 0
        return found

    def keeping(self, rule: str) -> int:
        """The nodes that keep a label rule."""
        if self._labels is None:
            self._labels = Labels([spec.labels for spec in self.specs])
        self.pool.effort.looks += LOOKS_FOR_RULE
        return self._labels.keeping(rule)

    def taints_among(self, tolerations: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the tolerations that make a difference here, in order: of taints that nodes have."""
        if self._taints is None:
            self._taints = Counter(taint for spec in self.specs for taint in spec.taints)
        return tuple(sorted({taint for taint in tolerations if self._taints.get(taint)}))

    def members(self, state: CellState, needs: Needs | None, part: object = None, has: Test | None = None) -> int:
        """The nodes of a part of the pool that suit these needs, in use or not. `part` names the test `has`."""
        found = self._members.get((needs, part))
        if found is None:
            found = (1 << len(self.specs)) - 1
            if has is not None:
                found &= self.passing(state, has)
            if needs is not None:
                found &= self._suiting(state, needs)
            self._members.keep((needs, part), found)
        return found

    def _suiting(self, state: CellState, needs: Needs) -> int:
        found = (1 << len(self.specs)) - 1
        if self.pool.nodes_tainted:
            found &= self.tolerating(state, needs.tolerations)
        if needs.outside_zone:
            found &= self.passing(state, is_general)
        for rule in dict.fromkeys(needs.rules):
            found &= self.keeping(rule)
        for node_id in needs.shut:
            found &= ~(1 << self.pool.number(node_id))
        return found


def needs_of(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Needs | None:
    """What the job asks of the nodes of this pool beside room; None where any node will do."""
    shut = shut_for(state, pool, spec) if state.maintenance_starts else ()
    outside_zone = pool.nodes_in_zone > 0 and spec.kind is JobKind.TRAINING
    if not (pool.nodes_tainted or spec.node_labels or spec.exclusive or shut or outside_zone):
        return None
    tolerations = marks_of(state, pool).taints_among(spec.tolerations) if pool.nodes_tainted else ()
    return Needs(tuple(sorted(spec.node_labels)), tolerations, spec.exclusive, shut, outside_zone)


def marks_of(state: CellState, pool: PoolCapacity) -> NodeFilterIndex:
    """The index over the pool as it is now."""
    found = pool.views.get(MARKS)
    if not isinstance(found, NodeFilterIndex):
        found = pool.views[MARKS] = NodeFilterIndex.of(pool, [state.nodes[node_id] for node_id in pool.ids])
    return found


def allowed(state: CellState, pool: PoolCapacity, spec: JobSpec) -> int | None:
    """The nodes that the job may take now, as a mask over the pool's numbers; None for all of them."""
    needs = needs_of(state, pool, spec)
    if needs is None:
        return None
    marks = marks_of(state, pool)
    found = marks.members(state, needs)
    return found & marks.empty if needs.exclusive else found
