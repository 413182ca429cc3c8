"""A tenant that floods its own topic with another's name is told so itself, and the other one is told nothing."""

from __future__ import annotations

import pytest

from fallow.services.admission.service import AdmissionService
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.shared.runtime.files.cell_file import parse_cell_file

FILE = parse_cell_file(
    """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 64}]}]
tenants: [{name: alice}, {name: mallory, own_topic: true, submissions: {per_s: 1}}]
""",
    "cell.yaml",
)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (SubmitJob.type, b'{"job":{"id":"train","tenant":"alice"}}'),
        (SubmitJob.type, b'{"job":{"id":"alice/train","tenant":"alice"}}'),
        (CancelJob.type, b'{"job":"train","tenant":"alice"}'),
    ],
)
def test_one_too_many_that_names_another_tenant_is_a_no_to_its_sender(type_: str, value: bytes) -> None:
    service = AdmissionService(FILE)
    answers = [service.over_rate(type_, value, "mallory", 1_000) for _ in range(12)]
    rejected = [answer for answer in answers if answer is not None]
    assert rejected
    for answer in rejected:
        assert isinstance(answer, JobRejected)
        assert (answer.job, answer.tenant) == ("alice/train", "mallory")
