"""Which nodes of a pool meet a job's constraints: bit masks over the pool's numbers, kept by delta.

A test of what a node is (a label rule, a set of tolerated taints, a zone) has the mask of the nodes that pass it, made
when somebody first asks and changed when a node becomes another. So what several constraints leave over is an AND of
masks, whatever the size of the pool. Which nodes are empty is kept likewise.

Nobody pays who does not ask: a pool in which no job has constraints and no node has taints has no such index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from shared.cluster.capacity import PoolCapacity
from shared.cluster.constraints import Needs, by_rule, by_taints, is_general
from shared.cluster.maintenance import shut_for
from shared.cluster.masks import mask_from
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.values import JobKind, JobSpec, NodeSpec

TESTS_MOST = 256
"""So many tests are remembered; what nobody has asked for longest is forgotten first."""

MARKS = "marks"
"""The name of this view of a pool."""

Test = Callable[[Node], bool]
"""Whether a node is of some kind, by its specification alone."""


_tested = attrgetter("labels", "taints", "role")
"""What of a node's specification a test may look at."""

Form = tuple[object, ...]
"""All that a test may look at: equal for nodes that pass the same tests."""


def _form(node: Node) -> Form:
    spec = node.spec
    return tuple(sorted(spec.labels.items())), spec.taints, spec.role, node.lent_to is not None


@dataclass(slots=True)
class _Kind:
    test: Test
    mask: int


@dataclass(slots=True)
class Marks:
    """The index over one pool. `empty` are the nodes without any job. `version` grows whenever a node may have come to
    pass a test or not to.
    """

    pool: PoolCapacity
    specs: list[NodeSpec]
    empty: int
    version: int = 0
    is_stale: bool = False
    _is_empty: bytearray = field(default_factory=bytearray)
    _kinds: dict[object, _Kind] = field(default_factory=dict)
    _members: dict[tuple[Needs | None, object], int] = field(default_factory=dict)
    _forms: dict[Form, int] | None = None
    """The nodes of each form, once somebody has asked for a test."""
    _form_of: list[Form] = field(default_factory=list)

    @classmethod
    def of(cls, pool: PoolCapacity, nodes: list[Node]) -> Marks:
        """The index over the pool's nodes, in their order, counted from nothing."""
        is_empty = bytearray(not node.jobs for node in nodes)
        return cls(
            pool,
            [node.spec for node in nodes],
            mask_from((at for at, empty in enumerate(is_empty) if empty), len(nodes)),
            _is_empty=is_empty,
        )

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        number = self.pool.number(node.spec.id)
        if (not node.jobs) != self._is_empty[number]:
            self._is_empty[number] ^= 1
            self.empty ^= 1 << number
        if node.spec is not self.specs[number]:
            if _tested(node.spec) != _tested(self.specs[number]):
                self._test_again(node, number)
            self.specs[number] = node.spec

    def _test_again(self, node: Node, number: int) -> None:
        self._members.clear()
        self.version += 1
        if self._forms is not None:
            self._move(number, _form(node))
        for kind in self._kinds.values():
            if kind.test(node) != (kind.mask >> number & 1):
                kind.mask ^= 1 << number

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

    def passing(self, state: CellState, name: object, test: Test) -> int:
        """The nodes that pass a test. `name` tells it from all others. Nodes of one form are tested once for all."""
        kind = self._kinds.pop(name, None)
        if kind is None:
            mask = 0
            for alike in self._by_form(state).values():
                first = self.specs[(alike & -alike).bit_length() - 1]
                mask |= alike if test(state.nodes[first.id]) else 0
            kind = _Kind(test, mask)
            if len(self._kinds) >= TESTS_MOST:
                self._members.clear()
                del self._kinds[next(iter(self._kinds))]
        self._kinds[name] = kind
        return kind.mask

    def members(self, state: CellState, needs: Needs | None, part: object = None, has: Test | None = None) -> int:
        """The nodes of a part of the pool that suit these needs, in use or not. `part` names the test `has`."""
        found = self._members.get((needs, part))
        if found is None:
            found = (1 << len(self.specs)) - 1
            if has is not None:
                found &= self.passing(state, ("part", part), has)
            if needs is not None:
                if self.pool.nodes_tainted:
                    found &= self.passing(state, ("taints", needs.tolerations), by_taints(needs.tolerations))
                if needs.outside_zone:
                    found &= self.passing(state, "outside the zone", is_general)
                for rule in needs.rules:
                    found &= self.passing(state, ("rule", rule), by_rule(rule))
                for node_id in needs.shut:
                    found &= ~(1 << self.pool.number(node_id))
            if len(self._members) >= TESTS_MOST:
                self._members.clear()
            self._members[needs, part] = found
        return found


def needs_of(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Needs | None:
    """What the job asks of the nodes of this pool beside room; None where any node will do."""
    shut = shut_for(state, pool, spec) if state.closing else ()
    outside_zone = pool.nodes_in_zone > 0 and spec.kind is JobKind.TRAINING
    if not (pool.nodes_tainted or spec.node_labels or spec.exclusive or shut or outside_zone):
        return None
    tolerations = tuple(sorted(spec.tolerations)) if pool.nodes_tainted else ()
    return Needs(tuple(sorted(spec.node_labels)), tolerations, spec.exclusive, shut, outside_zone)


def marks_of(state: CellState, pool: PoolCapacity) -> Marks:
    """The index over the pool as it is now."""
    found = pool.views.get(MARKS)
    if not isinstance(found, Marks):
        found = pool.views[MARKS] = Marks.of(pool, [state.nodes[node_id] for node_id in pool.ids])
    return found


def allowed(state: CellState, pool: PoolCapacity, spec: JobSpec) -> int | None:
    """The nodes that the job may take now, as a mask over the pool's numbers; None for all of them."""
    needs = needs_of(state, pool, spec)
    if needs is None:
        return None
    marks = marks_of(state, pool)
    found = marks.members(state, needs)
    return found & marks.empty if needs.exclusive else found
