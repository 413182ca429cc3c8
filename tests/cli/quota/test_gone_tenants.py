"""A tenant that has left the cell file stands in the table as long as something of it is left."""

from __future__ import annotations

import pytest

from fallow.cli.quota.tenants import parted
from fallow.shared.view.rows import AccountRow, TenantRow

ACCOUNT = AccountRow("gpu", used_milli=0, guaranteed_milli=8_000, limit_milli=None, borrowed_milli=0)


@pytest.mark.parametrize(
    ("row", "is_gone"),
    [
        (TenantRow("ada", (), 0, 0), False),
        (TenantRow("audio", (), 0, 0), True),
        (TenantRow("audio", (), 1, 0), False),
        (TenantRow("audio", (), 0, 1), False),
        (TenantRow("audio", (ACCOUNT,), 0, 0), False),
    ],
)
def test_one_of_whom_nothing_is_left_is_only_named(row: TenantRow, is_gone: bool) -> None:
    assert parted([row], ["ada"]) == (([], ["audio"]) if is_gone else ([row], []))
