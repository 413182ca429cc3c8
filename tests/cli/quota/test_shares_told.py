"""What `fallow tenant shares` says of the past."""

from __future__ import annotations

from fallow.cli.quota.shares import rows_of
from fallow.services.placement.explain.fair_share import TenantShare, TypeShare

VISION = TenantShare("vision", None, 0, False, 0, 0, None, 0, None, (TypeShare("gpu", 1, 48_000, 0, 64_000),))


def test_where_nothing_is_recorded_no_figure_of_late_is_told() -> None:
    assert [row[-1] for row in rows_of(VISION, is_recorded=False)] == ["-"]
    assert [row[-1] for row in rows_of(VISION, is_recorded=True)] == ["0.0"]
