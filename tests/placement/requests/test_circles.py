"""No job waits for itself, and to see that takes few steps, whatever waits for what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.requests import arrays, circles
from fallow.services.placement.requests.circles import STEPS_MAX, circle
from fallow.shared.cluster.model.arrays import element_id
from fallow.shared.events.fields.values import AFTER_MAX, Dependency, JobSpec
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.events.reasons import RefuseCode
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, DIGEST, World, admitted, codes, spec_of

NUMBERS = range(6)


def spec(name: str, *waits: str, array: int | None = None, tenant: str = "ada") -> JobSpec:
    after = tuple(Dependency(job=waited) for waited in dict.fromkeys(waits))
    return spec_of(name, 1, after=after, array=array, tenant=tenant)


def names_of(number: int) -> list[str]:
    """A job, or the array of two that may come in its place."""
    return [f"j{number}", *(element_id(f"j{number}", index) for index in range(2))]


@st.composite
def submissions(draw: st.DrawFn) -> list[JobSpec]:
    """Jobs and small arrays in any order, that name each other and elements of each other, but never themselves."""
    found = []
    for number in draw(st.permutations(NUMBERS)):
        others = [name for other in NUMBERS if other != number for name in names_of(other)]
        waits = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))
        found.append(spec(f"j{number}", *waits, array=draw(st.sampled_from([None, None, 2]))))
    return found


def waits_for_itself(accepted: list[JobSpec], new: JobSpec) -> bool:
    """The same by the definition: each element on its own, every way."""
    waits: dict[str, list[str]] = {}
    for each in [*accepted, new]:
        elements = arrays.ids(each)[1:]
        named = [dependency.job for dependency in each.after]
        waits[each.id] = [*elements, *named]
        waits.update(dict.fromkeys(elements, named))

    def reaches(job_id: str, passed: tuple[str, ...]) -> bool:
        return any(
            waited in arrays.ids(new) or (waited not in passed and reaches(waited, (*passed, waited)))
            for waited in waits.get(job_id, ())
        )

    return any(reaches(dependency.job, (dependency.job,)) for dependency in new.after if dependency.job in waits)


@given(submissions())
def test_a_job_is_refused_exactly_if_it_would_wait_for_itself(jobs: list[JobSpec]) -> None:
    world, accepted = World(), list[JobSpec]()
    world.checks = False
    for job in jobs:
        expected = [RefuseCode.AFTER_ITSELF] if waits_for_itself(accepted, job) else []
        reaches("a job is refused since it would wait for itself", expected)
        assert codes(world.tell(admitted(job))) == expected
        if not expected:
            accepted.append(job)


def test_what_is_found_names_a_job_of_the_circle() -> None:
    world = told(spec("a", "c"), spec("b", "a"))
    assert circle(world.state, spec("c", "b"), ("c",)).job == "a"


def told(*specs: JobSpec) -> World:
    world = World()
    world.checks = False
    for first in range(0, len(specs), 100):
        jobs = tuple(AdmittedJob(spec=each, submit_ms=0, digest=DIGEST) for each in specs[first : first + 100])
        world.tell(JobsAdmitted(cell=CELL, jobs=jobs))
    return world


def crowd(name: str, first: str | None = None, count: int = 200, tenant: str = "ada") -> list[JobSpec]:
    """Jobs of which each waits for a hundred before it, and all of them for `first`."""
    return [
        spec(
            f"{name}{number}",
            *(f"{name}{other}" for other in range(max(0, number - 99), number)),
            *([] if first is None else [first]),
            tenant=tenant,
        )
        for number in range(count)
    ]


def test_the_search_is_as_short_as_the_shorter_side() -> None:
    world = told(*crowd("before"), spec("behind", "new"))
    found = circle(world.state, spec("new", "before199"), ("new",))
    assert (found.job, found.is_cut) == (None, False)
    assert found.steps <= AFTER_MAX + 2
    world = told(spec("before"), *crowd("behind", "new"))
    found = circle(world.state, spec("new", "before"), ("new",))
    assert (found.job, found.is_cut) == (None, False)
    assert found.steps < 300


def test_where_both_sides_are_long_it_ends_after_so_many_steps_and_the_job_is_refused() -> None:
    world = told(*crowd("before"), *crowd("behind", "new"))
    new = spec("new", "before199")
    found = circle(world.state, new, ("new",))
    assert (found.job, found.is_cut) == (None, True)
    assert found.steps <= 2 * STEPS_MAX
    assert codes(world.tell(admitted(new))) == [RefuseCode.AFTER_TOO_MANY]


def test_no_crowd_of_another_tenant_keeps_a_job_from_being_accepted() -> None:
    world = told(*crowd("before"), *crowd("theirs", "new", tenant="bob"))
    assert codes(world.tell(admitted(spec("new", "before199")))) == []


def test_a_job_for_which_nothing_waits_needs_no_search() -> None:
    world = told(*crowd("before"))
    assert circles.circle(world.state, spec("new", "before199"), ("new",)).steps == 0
