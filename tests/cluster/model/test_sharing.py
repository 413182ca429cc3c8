"""Jobs of one kind share what they have in common, and stay what they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.fold.spec_interning import KINDS_MAX, Kinds, share
from fallow.shared.events.base import replace
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import JobSpec, Resources
from tests.cluster.worlds.examples import cell, enqueued
from tests.hypothesis_profile import reaches
from tests.strategies import values

WISHES = {"pools": ("train",), "queue": "nightly", "resources": Resources(gpu_milli=4000, cpu_milli=32_000)}


def test_jobs_of_one_kind_share_their_parts() -> None:
    state = cell(enqueued("a", **WISHES), enqueued("b", **WISHES))
    a, b = state.jobs["a"].spec, state.jobs["b"].spec
    assert [a.tenant is b.tenant, a.queue is b.queue, a.pools is b.pools, a.resources is b.resources] == [True] * 4


def test_jobs_that_were_read_from_a_snapshot_share_them_too() -> None:
    state = state_from(list(rows_of(cell(enqueued("a", **WISHES), enqueued("b", **WISHES)))))
    assert state.jobs["a"].spec.resources is state.jobs["b"].spec.resources


@given(specs=st.lists(values(JobSpec), max_size=4))
def test_what_shares_is_still_the_same_value(specs: list[JobSpec]) -> None:
    kinds: Kinds = {}
    twice = [replace(spec) for spec in specs for _ in range(2)]
    for spec in twice:
        share(kinds, spec)
    reaches("several jobs share parts with their likes", len(kinds) > 1)
    assert twice == [spec for spec in specs for _ in range(2)]
    assert [encode(spec) for spec in twice] == [encode(spec) for spec in specs for _ in range(2)]


def test_the_table_of_kinds_is_bounded() -> None:
    kinds: Kinds = {}
    for number in range(KINDS_MAX + 5):
        share(kinds, JobSpec(id="job", tenant="ada", resources=Resources(cpu_milli=number)))
    assert len(kinds) == 5
