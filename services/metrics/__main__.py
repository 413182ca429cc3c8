"""`python -m fallow.services.metrics`: one metrics process."""

from __future__ import annotations

from fallow.shared.runtime.tasks.background import Rank, step_back

if __name__ == "__main__":
    step_back(Rank.WATCH)

    from fallow.services.metrics.app import main
    from fallow.services.metrics.settings import MetricsSettings
    from fallow.shared.runtime.process import serve

    serve("metrics", main, MetricsSettings)
