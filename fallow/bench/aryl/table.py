"""The rows as a table of the paper's shape: below each row what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.bench.aryl.figures import Row
from fallow.bench.aryl.paper import Printed, printed

HEAD = (
    f"{'policy':<15}{'scenario':<14}{'N':>4}{'seed':>5}  {'queue mean':>10}{'p50':>6}{'p95':>8}{'longest':>9}"
    f"  {'JCT mean':>9}{'p50':>7}{'p95':>8}  {'train':>6}{'all':>6}{'loan':>6}"
    f"  {'preempted':>9}{'collat.':>8}{'way':>7}"
)


def lines_of(rows: Sequence[Row]) -> list[str]:
    """All rows, each with the paper's figures below it where it has some."""
    lines = [HEAD]
    for row in rows:
        lines.append(_ours(row))
        paper = printed(row["policy"], row["scenario"])
        if paper is not None:
            lines.append(_theirs(paper))
    return lines


def _ours(row: Row) -> str:
    return (
        f"{row['policy']:<15}{row['scenario']:<14}{row['nodes']:>4}{row['seed']:>5}  {row['queue_s_mean']:>10,.1f}"
        f"{row['queue_s_p50']:>6,.0f}{row['queue_s_p95']:>8,.0f}{row['longest_wait_h']:>7.1f} h"
        f"  {row['jct_s_mean']:>9,.0f}{row['jct_s_p50']:>7,.0f}{row['jct_s_p95']:>8,.0f}"
        f"  {_share(row['train_use']):>6}{_share(row['overall_use']):>6}{_share(row['on_loan_use']):>6}"
        f"  {row['preempted_pct']:>7.2f} %{_share(row['collateral']):>8}{_share(row['bound_share']):>7}"
    )


def _theirs(paper: Printed) -> str:
    queue, jct = paper.queue_s, paper.jct_s
    preempted = "-" if paper.preempted_pct is None else f"{paper.preempted_pct:.2f} %"
    return (
        f"{'  (paper)':<38}  {queue[0]:>10,}{queue[1]:>6,}{queue[2]:>8,}{'':>9}  {jct[0]:>9,}{jct[1]:>7,}{jct[2]:>8,}"
        f"  {_share(paper.train_use):>6}{_share(paper.overall_use):>6}{'':>6}  {preempted:>9}"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
