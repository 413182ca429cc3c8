"""A refusal that tells no tenant, as those of operators' commands do, is the answer to every command that waits for
one.
"""

from __future__ import annotations

import pytest

from fallow.shared.client.answers import is_no_to
from fallow.shared.events import effects as e
from fallow.shared.events.reasons import RefuseCode


@pytest.mark.parametrize("tenant", ["alice", None])
def test_a_no_that_tells_no_tenant_answers_a_command_of_any(tenant: str | None) -> None:
    no = e.JobRefused(job="train", request="cancel", code=RefuseCode.UNKNOWN_JOB)
    assert is_no_to(no, "cancel", tenant)
