"""Each of the folders of a run counts, also where it is the only one."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.events.fields.value import replace
from tests.cluster.model.test_spec_bytes import PLAIN, RUN, RUN_BYTES


@pytest.mark.parametrize("name", ["dir", "checkpoint_dir"])
def test_one_folder_alone_is_counted(name: str) -> None:
    folder = "/" + "x" * 1_000
    assert spec_bytes(replace(PLAIN, run=replace(RUN, **{name: folder}))) >= RUN_BYTES + len(folder)
