"""The limits of any single job, in whole GPUs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.policy.limits import over_job_limits
from fallow.shared.cluster.model.config import CellFile, Limits
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.reasons import RejectCode
from fallow.shared.runtime.files.cell_file import parse_cell_file
from tests.hypothesis_profile import reaches

TEXT = "cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 64}]}]\ntenants: [{name: vision}]\n"


def file_of(gpus_per_job: int) -> CellFile:
    return parse_cell_file(TEXT, "cell").model_copy(update={"limits": Limits(gpus_per_job=gpus_per_job)})


def test_half_a_gpu_above_the_limit_is_too_many() -> None:
    spec = JobSpec(id="train", tenant="vision", workers=5, resources=Resources(gpu_milli=500))
    assert over_job_limits(file_of(3), spec) is None
    over = over_job_limits(file_of(2), spec)
    assert over is not None
    assert (over.code, over.wanted, over.allowed) == (RejectCode.OVER_JOB_LIMIT, 3, 2)
    assert over.rule == "3 GPUs in all its workers, a job may have 2"


@given(st.integers(1, 20), st.sampled_from([1, 100, 250, 500, 999]) | st.integers(1, 8).map(lambda n: n * GPU))
def test_a_job_is_over_the_limit_just_where_its_workers_have_more_gpus_in_all(workers: int, gpu_milli: int) -> None:
    spec = JobSpec(id="train", tenant="vision", workers=workers, resources=Resources(gpu_milli=gpu_milli))
    all_milli, limit = workers * gpu_milli, max(1, workers * gpu_milli // GPU)
    reaches("a job has a part of a GPU more than the limit", limit * GPU < all_milli < (limit + 1) * GPU)
    assert (over_job_limits(file_of(limit), spec) is not None) is (all_milli > limit * GPU)
