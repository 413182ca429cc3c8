"""Pages of jobs of several statuses follow each other in the order of the bytes of their ids, also on a server that was
started in a language whose order is another.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.view.keys import keys_of
from fallow.shared.view.library import library_source
from fallow.shared.view.lupa_view import LuaFunctions
from tests.hypothesis_profile import reaches, shared_among

KEYS = keys_of("fallow", "main")
STATUSES = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FINISHED)
LOOK = "local GOES_BY_BYTES = 'Z' < 'a' and 'a-b' < 'aa'"
LANGUAGES = {"its order is that of bytes": LOOK, "its order is another": "local GOES_BY_BYTES = false"}
"""How the library finds out by what order the server compares; and as it stands where that is not the bytes' one."""

ids = st.text(alphabet="aAbZ019-._", min_size=1, max_size=4).map("ada/".__add__)


def test_the_library_finds_out_by_what_order_its_server_compares() -> None:
    assert library_source().count(LOOK) == 1


@shared_among(len(LANGUAGES))
@pytest.mark.parametrize("language", LANGUAGES)
@given(jobs=st.dictionaries(ids, st.sampled_from(STATUSES), min_size=2, max_size=30), limit=st.integers(1, 9))
async def test_every_job_stands_on_one_page_in_the_order_of_bytes(
    language: str, jobs: Mapping[str, JobStatus], limit: int
) -> None:
    functions = LuaFunctions(library_source().replace(LOOK, LANGUAGES[language]))
    await fill(functions, jobs)
    found, after = list[str](), ""
    while page := await page_of(functions, after, limit):
        found, after = [*found, *page], page[-1]
    assert found == sorted(jobs, key=str.encode)
    reaches("jobs of several statuses share a page", limit > 1 and len(set(jobs.values())) > 1)


async def fill(functions: LuaFunctions, jobs: Mapping[str, JobStatus]) -> None:
    """A view of these jobs, each row of which ends with its id."""
    count = str(len(jobs))
    rows = [word for job, status in jobs.items() for word in (job, f"ada {status} \n{job}")]
    await functions.call("begin_rebuild", KEYS, ["r/1", "", "0", "0"])
    await functions.call("load_rows", KEYS, ["r/1", "0", count, *"00000", *rows])
    answer = await functions.call("finish_rebuild", KEYS, ["r/1", "1", "1", "c", "0", "[]", count, "0", "0", "0"])
    assert answer[0] == "OK"


async def page_of(functions: LuaFunctions, after: str, limit: int) -> list[str]:
    answer = await functions.call("read_jobs", KEYS, ["", after, str(limit), *STATUSES])
    return [row.partition("\n")[2] for row in answer[4::2]]
