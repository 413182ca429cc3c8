from __future__ import annotations

import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.policy.known_arrays import KnownArrays
from fallow.services.admission.policy.rates import SubmissionRates
from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from tests.hypothesis_profile import reaches

TEXT = """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 64}]}]
tenants:
  - {name: vision, submissions: {per_s: 10, burst: 20}}
  - {name: speech, submissions: {per_s: 1}}
  - {name: search}
"""


@pytest.fixture
def file() -> CellFile:
    return parse_cell_file(TEXT, "cell.yaml")


@pytest.fixture
def rates(file: CellFile) -> SubmissionRates:
    return SubmissionRates(file)


def taken(rates: SubmissionRates, tenant: str, count: int, at_ms: int) -> int:
    return sum(rates.refusal(tenant, at_ms) is None for _ in range(count))


def test_so_many_come_at_once_and_no_more(rates: SubmissionRates) -> None:
    assert taken(rates, "vision", 50, 1_000) == 20


def test_without_a_burst_a_second_s_worth_may_come_at_once(rates: SubmissionRates) -> None:
    assert taken(rates, "speech", 50, 1_000) == 1


def test_a_tenant_without_a_limit_may_send_as_many_as_come(rates: SubmissionRates) -> None:
    assert taken(rates, "search", 5_000, 1_000) == 5_000


def test_in_the_long_run_so_many_a_second_are_taken(rates: SubmissionRates) -> None:
    assert sum(taken(rates, "vision", 5, 1_000 + 100 * tenth) for tenth in range(100)) == 20 + 99


def test_who_sends_at_the_limit_is_never_refused(rates: SubmissionRates) -> None:
    assert sum(taken(rates, "vision", 1, 100 * tenth) for tenth in range(1_000)) == 1_000


def test_one_tenant_s_flood_costs_no_other_a_token(rates: SubmissionRates) -> None:
    taken(rates, "vision", 1_000, 1_000)
    assert taken(rates, "speech", 1, 1_000) == 1


def test_one_that_comes_behind_later_ones_takes_its_token_at_its_own_time(rates: SubmissionRates) -> None:
    taken(rates, "vision", 20, 10_000)
    assert taken(rates, "vision", 5, 9_900) == 1, "more would have been missing a tenth of a second later"
    assert taken(rates, "vision", 50, 1_000) == 20
    assert taken(rates, "vision", 50, 1_000) == 0
    assert taken(rates, "vision", 5, 10_100) == 1


@pytest.mark.parametrize("batch", [1, 50, 150, 300])
@pytest.mark.parametrize("partitions", [2, 3, 12])
def test_a_backlog_is_no_flood_in_whatever_order_its_partitions_are_read(
    rates: SubmissionRates, partitions: int, batch: int
) -> None:
    """Five a second, where ten are allowed."""
    rates.share(partitions, partitions)
    times_ms = [200 * number for number in range(600)]
    halves = [times_ms[first::partitions] for first in range(partitions)]
    order = [at_ms for begin in range(0, 600, batch) for half in halves for at_ms in half[begin : begin + batch]]
    assert sorted(order) == times_ms
    assert [rates.refusal("vision", at_ms) for at_ms in order] == [None] * 600


def test_a_few_large_bursts_of_a_backlog_are_no_flood_either(rates: SubmissionRates) -> None:
    """Each second burst is of another partition, which is read behind the first."""
    hours_ms = [3_600_000 * hour for hour in range(5)]
    assert [taken(rates, "vision", 10, at_ms) for _ in range(2) for at_ms in hours_ms] == [10] * 10


@pytest.mark.parametrize("partitions", [1, 2, 12])
def test_of_a_flood_no_more_is_taken_because_its_partitions_are_read_one_by_one(
    rates: SubmissionRates, partitions: int
) -> None:
    halves = [range(10 * first, 60_000, 10 * partitions) for first in range(partitions)]
    assert sum(taken(rates, "vision", 1, at_ms) for half in halves for at_ms in half) <= 20 + 600


def test_a_bucket_takes_no_more_room_the_longer_its_tenant_sends(rates: SubmissionRates) -> None:
    """Of a backlog the second partition is read behind the first: each of its commands lies between two others."""
    for at_ms in range(0, 20_000_000, 1_000):
        taken(rates, "vision", 1, at_ms)
    for at_ms in range(500, 20_000_000, 10_000):
        taken(rates, "vision", 1, at_ms)
    assert len(pickle.dumps(rates)) < 30_000


def test_a_silence_of_less_than_an_eighth_of_its_age_is_no_room_for_more_than_a_burst(rates: SubmissionRates) -> None:
    """A course that is joined counts what was taken before and behind it as of one time only where that is older."""
    for at_ms in (0, 100_000, *range(500_000, 640_000, 250)):
        assert taken(rates, "vision", 1, at_ms) == 1
    assert taken(rates, "vision", 2_000, 50_000) == 20


def test_what_a_late_burst_took_is_not_there_now() -> None:
    text = TEXT.replace("{per_s: 10, burst: 20}", "{per_s: 1, burst: 3000}")
    rates = SubmissionRates(parse_cell_file(text, "cell.yaml"))
    steady = sum(taken(rates, "vision", 1, 1_000 * second) for second in range(2_000))
    assert steady + taken(rates, "vision", 3_000, 0) + taken(rates, "vision", 3_000, 1_999_000) <= 3_000 + 2_000


def test_a_batch_that_comes_again_is_judged_alike(rates: SubmissionRates) -> None:
    taken(rates, "vision", 5, 900)
    kept = rates.keep()
    first = [rates.refusal("vision", 1_000 + 10 * n) for n in range(60)]
    rates.back(kept)
    rates.keep()
    assert [rates.refusal("vision", 1_000 + 10 * n) for n in range(60)] == first


def test_a_first_batch_that_comes_again_is_judged_alike(rates: SubmissionRates) -> None:
    for _ in range(3):
        kept = rates.keep()
        assert taken(rates, "vision", 60, 1_000) == 20
        rates.back(kept)


def test_two_admissions_that_share_the_partitions_take_no_more_than_one(file: CellFile) -> None:
    two = [SubmissionRates(file), SubmissionRates(file)]
    for half in two:
        half.share(6, 12)
    assert [taken(half, "vision", 50, 1_000) for half in two] == [10, 10]
    assert [taken(half, "vision", 50, 3_000) for half in two] == [10, 10]


def test_a_part_of_a_bucket_holds_a_whole_token_however_many_share_it(rates: SubmissionRates) -> None:
    """Else a tenant of few a second could send nothing at all."""
    rates.share(1, 12)
    assert [taken(rates, "speech", 5, at_ms) for at_ms in (1_000, 12_000, 13_100)] == [1, 0, 1]


def test_a_reload_keeps_what_was_taken(rates: SubmissionRates, file: CellFile) -> None:
    taken(rates, "vision", 20, 1_000)
    rates.reload(file)
    assert taken(rates, "vision", 5, 1_000) == 0


SPEECH = b'{"job":{"id":"a","tenant":"speech"}}'
UPDATE = b'{"job":"a","tenant":"speech","changes":{"priority":1}}'
CANCEL = b'{"job":"a","tenant":"speech"}'


def test_a_refused_submission_is_answered_with_the_numbers(file: CellFile) -> None:
    service = AdmissionService(file)
    assert service.over_rate(SubmitJob.type, SPEECH, None, 1_000) is None
    refused = service.over_rate(SubmitJob.type, SPEECH, None, 1_250)
    assert isinstance(refused, JobRejected)
    assert (refused.code, refused.job, refused.tenant) == (RejectCode.TOO_MANY_SUBMISSIONS, "speech/a", "speech")
    assert (refused.field, refused.value, refused.wanted, refused.allowed) == ("tenant", "speech", 2, 1)
    assert refused.rule == "a tenant may submit or update 1 a second and 1 at once; try again in 750 ms"


def test_an_update_takes_a_token_as_a_submission_does(file: CellFile) -> None:
    service = AdmissionService(file)
    assert service.over_rate(UpdateJob.type, UPDATE, None, 1_000) is None
    refused = service.over_rate(UpdateJob.type, UPDATE, None, 1_250)
    assert isinstance(refused, JobRejected)
    assert (refused.code, refused.job, refused.command) == (RejectCode.TOO_MANY_SUBMISSIONS, "speech/a", "update")


@pytest.mark.parametrize("setting", ["{per_s: 0}", "{per_s: 1, burst: 0}", "{burst: 5}", "{per_s: 1, per_min: 5}"])
def test_a_limit_that_makes_no_sense_is_a_mistake_of_the_file(setting: str) -> None:
    with pytest.raises(CellFileError, match="submissions"):
        parse_cell_file(TEXT.replace("{per_s: 10, burst: 20}", setting), "cell.yaml")


@pytest.mark.parametrize("rest", ["", ',"zz":1', ',"array":"many"', ',"workers":0'])
def test_a_submission_takes_a_token_of_the_tenant_that_it_names_whatever_else_is_wrong(
    file: CellFile, rest: str
) -> None:
    service = AdmissionService(file)
    value = f'{{"job":{{"id":"a","tenant":"speech"{rest}}}}}'.encode()
    assert service.over_rate(SubmitJob.type, value, None, 1_000) is None
    refused = service.over_rate(SubmitJob.type, value, None, 1_250)
    assert isinstance(refused, JobRejected)
    assert (refused.code, refused.command) == (RejectCode.TOO_MANY_SUBMISSIONS, "submit")


def test_what_comes_by_a_tenant_s_own_topic_takes_that_tenant_s_token_whomever_it_names(file: CellFile) -> None:
    service = AdmissionService(file)
    value = b'{"job":{"id":"a","tenant":"vision"}}'
    assert service.over_rate(SubmitJob.type, value, "speech", 1_000) is None
    refused = service.over_rate(SubmitJob.type, value, "speech", 1_250)
    assert isinstance(refused, JobRejected)
    assert refused.code is RejectCode.TOO_MANY_SUBMISSIONS
    assert taken(service.rates, "vision", 50, 1_250) == 20


@pytest.mark.parametrize("type_", [SubmitJob.type, "hello", ""])
@pytest.mark.parametrize("value", [b"no JSON", b'{"job":{"id":"LOUD","tenant":"speech"}}', None])
def test_what_can_only_be_set_aside_takes_a_token_of_the_tenant_whose_own_topic_it_came_by(
    file: CellFile, type_: str, value: bytes | None
) -> None:
    service = AdmissionService(file)
    assert service.over_rate(type_, value, "speech", 1_000) is None
    over = service.over_rate(type_, value, "speech", 1_250)
    assert isinstance(over, Undecodable)
    assert (over.reason, over.value) == (DeadLetterReason.TOO_MANY, "speech")
    assert service.over_rate(type_, value, None, 1_250) is None
    assert isinstance(service.over_rate(SubmitJob.type, SPEECH, "speech", 1_250), JobRejected)


def test_cancels_have_a_bucket_of_their_own_ten_times_as_large(file: CellFile) -> None:
    service = AdmissionService(file)
    assert service.over_rate(SubmitJob.type, SPEECH, None, 1_000) is None
    assert service.over_rate(SubmitJob.type, SPEECH, None, 1_000) is not None
    answers = [service.over_rate(CancelJob.type, CANCEL, None, 1_000) for _ in range(11)]
    assert answers[:10] == [None] * 10
    refused = answers[10]
    assert isinstance(refused, JobRejected)
    assert (refused.code, refused.command) == (RejectCode.TOO_MANY_SUBMISSIONS, "cancel")
    assert refused.rule == "a tenant may cancel 10 a second and 10 at once; try again in 100 ms"
    assert service.over_rate(CancelJob.type, CANCEL, None, 1_100) is None


def array(elements: int, cell: str = "main") -> JobAdmitted:
    """An array of so many elements; of none: a plain job."""
    spec = JobSpec(id="a", tenant="vision", array=elements or None)
    return JobAdmitted(cell=cell, spec=spec, submit_ms=0, digest="0" * 32)


def sent(service: AdmissionService, answer: Event, at_ms: int) -> Event:
    """What becomes of a command of vision's with this answer."""
    type_ = SubmitJob.type
    if not isinstance(answer, JobAdmitted):
        type_ = UpdateJob.type if isinstance(answer, JobUpdateRequested) else CancelJob.type
    value = b'{"job":{"id":"a","tenant":"vision"}}' if type_ == SubmitJob.type else b'{"job":"a","tenant":"vision"}'
    over = service.over_rate(type_, value, None, at_ms)
    assert not isinstance(over, Undecodable)
    return over or service.within_rate(answer, None, at_ms)


def test_an_array_takes_a_token_for_each_of_its_elements(file: CellFile) -> None:
    service = AdmissionService(file)
    assert isinstance(sent(service, array(25), 1_000), JobAdmitted)
    refused = sent(service, array(15), 1_000)
    assert isinstance(refused, JobRejected)
    assert (refused.code, refused.wanted, refused.allowed) == (RejectCode.TOO_MANY_SUBMISSIONS, 21, 20)
    assert refused.rule == "a tenant may submit or update 10 a second and 20 at once; try again in 600 ms"
    assert isinstance(sent(service, array(15), 1_600), JobAdmitted)


def test_a_late_array_that_would_take_what_an_earlier_one_owes_is_told_its_elements(file: CellFile) -> None:
    service = AdmissionService(file)
    assert taken(service.rates, "vision", 5, 1_000) == 5
    assert isinstance(sent(service, array(40), 1_100), JobAdmitted)
    refused = sent(service, array(20), 1_050)
    assert isinstance(refused, JobRejected)
    assert refused.rule == (
        "a tenant may submit or update 10 a second and 20 at once, and an array counts as its 20 elements; "
        "try again in 2600 ms"
    )


def test_an_array_is_admitted_as_a_plain_job_is_and_takes_the_bucket_into_debt(file: CellFile) -> None:
    service = AdmissionService(file)
    assert taken(service.rates, "vision", 19, 1_000) == 19
    assert isinstance(sent(service, array(100), 1_000), JobAdmitted)
    assert taken(service.rates, "vision", 50, 10_900) == 0
    assert taken(service.rates, "vision", 50, 11_000) == 1


def test_a_tenant_that_sends_near_its_limit_gets_its_arrays_from_any_number_of_admissions(file: CellFile) -> None:
    """Of four admissions each has a fourth of the bucket, which is never full to its last token."""
    service = AdmissionService(file)
    service.rates.share(3, 12)
    assert taken(service.rates, "vision", 4, 1_000) == 4
    assert all(taken(service.rates, "vision", 1, at_ms) for at_ms in range(1_400, 60_000, 400))
    assert isinstance(sent(service, array(15), 60_000), JobAdmitted)


def test_an_array_that_is_read_late_takes_what_was_there_and_was_not_used_since(file: CellFile) -> None:
    rates = SubmissionRates(file)
    assert taken(rates, "vision", 20, 11_000) == 20
    assert rates.refusal("vision", 5_000, 20) is None
    assert taken(rates, "vision", 5, 11_000) == 0


def test_a_large_array_that_is_read_late_leaves_its_debt_behind(file: CellFile) -> None:
    rates = SubmissionRates(file)
    assert taken(rates, "vision", 20, 5_000) == 20
    assert rates.refusal("vision", 1_000, 100) is None
    assert rates.refusal("vision", 1_000, 100) is not None
    assert taken(rates, "vision", 5, 10_900) == 0
    assert taken(rates, "vision", 50, 13_000) == 20


def test_jobs_that_were_sent_before_an_array_and_are_read_behind_it_are_admitted(file: CellFile) -> None:
    rates = SubmissionRates(file)
    assert rates.refusal("vision", 1_010, 100) is None
    assert taken(rates, "vision", 50, 1_000) == 19


def test_so_are_they_where_a_plain_job_came_in_the_same_moment_as_the_array(rates: SubmissionRates) -> None:
    assert rates.refusal("vision", 1_000, 15) is None
    assert taken(rates, "vision", 1, 1_000) == 1
    assert taken(rates, "vision", 50, 900) == 19


def test_so_are_they_where_the_array_itself_was_read_late_behind_a_plain_job_of_its_moment(
    rates: SubmissionRates,
) -> None:
    assert [taken(rates, "vision", 1, at_ms) for at_ms in (1_000, 6_000)] == [1, 1]
    assert rates.refusal("vision", 1_010, 40) is None
    assert taken(rates, "vision", 1, 990) == 1


def test_an_update_of_an_array_counts_as_its_elements_do(file: CellFile) -> None:
    service = AdmissionService(file)
    assert isinstance(sent(service, array(15), 1_000), JobAdmitted)
    update = JobUpdateRequested(cell="main", job="a", tenant="vision", changes=JobChanges(priority=1))
    assert sent(service, update, 3_000) is update
    assert taken(service.rates, "vision", 50, 3_000) == 5


def test_a_cancel_costs_one_token_whatever_it_ends(file: CellFile) -> None:
    """A tenant can end its jobs."""
    service = AdmissionService(file)
    assert isinstance(sent(service, array(15), 1_000), JobAdmitted)
    cancel = JobCancelRequested(cell="main", job="a", tenant="vision")
    assert sum(sent(service, cancel, 3_000) is cancel for _ in range(300)) == 200


@pytest.mark.parametrize("elements", [0, 2])
def test_no_later_job_of_its_id_makes_the_updates_of_an_array_cheaper(file: CellFile, elements: int) -> None:
    """Placement refuses that job: the id was used before."""
    service = AdmissionService(file)
    assert isinstance(sent(service, array(15), 1_000), JobAdmitted)
    assert isinstance(sent(service, array(elements), 20_000), JobAdmitted)
    update = JobUpdateRequested(cell="main", job="a", tenant="vision", changes=JobChanges(priority=1))
    assert sent(service, update, 30_000) is update
    assert taken(service.rates, "vision", 50, 30_000) == 5


def test_an_array_of_another_cell_makes_no_update_dearer(file: CellFile) -> None:
    """A job's id is of its cell."""
    service = AdmissionService(file)
    assert isinstance(sent(service, array(15, cell="other"), 1_000), JobAdmitted)
    service.keep()
    update = JobUpdateRequested(cell="main", job="a", tenant="vision", changes=JobChanges(priority=1))
    assert sent(service, update, 3_000) is update
    assert taken(service.rates, "vision", 50, 3_000) == 19


def test_a_batch_that_is_handled_again_knows_no_array_before_it_comes(file: CellFile) -> None:
    service = AdmissionService(file)
    update = JobUpdateRequested(cell="main", job="a", tenant="vision", changes=JobChanges(priority=1))

    def handled() -> list[bool]:
        return [isinstance(sent(service, each, 1_000), JobRejected) for each in (update, *[array(0)] * 9, array(15))]

    kept = service.keep()
    before = handled()
    service.back(kept)
    assert handled() == before


Commands = list[tuple[int, int]]
"""Times, and how many tokens."""

commands = st.lists(st.tuples(st.integers(0, 30_000), st.sampled_from([*range(1, 8), 20, 60])), max_size=60)


@pytest.mark.parametrize("steps_max", [512, 4])
@given(sent=commands)
def test_in_any_order_no_more_is_taken_than_a_bucket_gains_and_the_largest_debt(steps_max: int, sent: Commands) -> None:
    """A course of many steps is less exact the older they are."""
    rates = SubmissionRates(parse_cell_file(TEXT, "cell.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fallow.services.admission.policy.course.STEPS_MAX", steps_max)
        done = [(at_ms, n) for at_ms, n in sent if rates.refusal("vision", at_ms, n) is None]
    newest_ms = max([0, *(at_ms for at_ms, _ in done)])
    reaches("of commands in any order some are taken, and some are not", 0 < len(done) < len(sent))
    for begin_ms, _ in done:
        for end_ms, _ in done:
            within = [n for at_ms, n in done if begin_ms <= at_ms <= end_ms]
            blur_ms = 500 if steps_max > len(sent) else 1_000 + (newest_ms - begin_ms) // 4
            gained = (max(0, end_ms - begin_ms) + blur_ms) * 10 / 1_000
            assert sum(within) <= 20 + gained + max([0, *within])


@pytest.mark.parametrize("steps_max", [512, 4])
@given(sent=commands, chance=st.randoms(use_true_random=False))
def test_what_is_within_the_limit_is_taken_in_whatever_order_it_is_read(
    steps_max: int, sent: Commands, chance: Random
) -> None:
    level, last_ms, within = 20_000, 0, Commands()
    for at_ms, n in sorted(sent, key=lambda each: (each[0], -each[1])):  # the last of one time may be in debt
        level, last_ms = min(20_000, level + 10 * (at_ms - last_ms)), at_ms
        if level >= 1_000:
            level -= 1_000 * n
            within.append((at_ms, n))
    chance.shuffle(within)
    is_disordered = within != sorted(within)
    reaches("commands within the limit are read in another order", is_disordered and len(within) < len(sent))
    rates = SubmissionRates(parse_cell_file(TEXT, "cell.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fallow.services.admission.policy.course.STEPS_MAX", steps_max)
        assert [rates.refusal("vision", at_ms, n) for at_ms, n in within] == [None] * len(within)


def test_what_a_batch_that_comes_again_took_late_is_given_back(rates: SubmissionRates) -> None:
    """The second time one that is late finds the course as the first one did."""
    for second in range(3):
        taken(rates, "vision", 15, 1_000 * second)
    kept = rates.keep()
    first = [taken(rates, "vision", 3, at_ms) for at_ms in (500, 1_500, 2_000)]
    rates.back(kept)
    rates.keep()
    assert [taken(rates, "vision", 3, at_ms) for at_ms in (500, 1_500, 2_000)] == first


def test_a_late_one_that_is_refused_is_told_when_the_bucket_of_now_has_a_token(rates: SubmissionRates) -> None:
    taken(rates, "vision", 20, 1_000)
    taken(rates, "vision", 1, 10_000)
    why = rates.refusal("vision", 1_000)
    assert why is not None
    assert why.rule.endswith("try again in 0 ms")


def test_no_more_arrays_are_known_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.services.admission.policy.known_arrays.ARRAYS_MAX", 2)
    arrays = KnownArrays()
    for job in ("a", "b", "c"):
        arrays.note("main", "vision", job, 5)
        arrays.keep()
    assert [arrays.elements("main", "vision", job) for job in ("a", "b", "c")] == [1, 5, 5]


def test_commands_of_other_jobs_do_not_push_known_arrays_out(monkeypatch: pytest.MonkeyPatch, file: CellFile) -> None:
    monkeypatch.setattr("fallow.services.admission.policy.known_arrays.ARRAYS_MAX", 2)
    service = AdmissionService(file)
    assert isinstance(sent(service, array(15), 1_000), JobAdmitted)
    for at_ms, job in enumerate(("x", "y", "z"), 100):
        other = JobUpdateRequested(cell="main", job=job, tenant="vision", changes=JobChanges(priority=1))
        assert sent(service, other, 1_000 * at_ms) is other
    update = JobUpdateRequested(cell="main", job="a", tenant="vision", changes=JobChanges(priority=1))
    assert sent(service, update, 200_000) is update
    assert taken(service.rates, "vision", 50, 200_000) == 5


def test_a_reload_keeps_what_was_taken_for_cancels_too(rates: SubmissionRates, file: CellFile) -> None:
    assert sum(rates.refusal("vision", 1_000, are_cancels=True) is None for _ in range(300)) == 200
    rates.reload(file)
    assert rates.refusal("vision", 1_000, are_cancels=True) is not None
