"""`python -m services.metrics`: one metrics process."""

from __future__ import annotations

from shared.runtime.background import Rank, step_back

if __name__ == "__main__":
    step_back(Rank.WATCH)

    from services.metrics.app import main
    from services.metrics.settings import MetricsSettings
    from shared.runtime.process import serve

    serve("metrics", main, MetricsSettings)
