"""`python -m services.metrics`: one metrics process."""

from services.metrics.app import main
from services.metrics.settings import MetricsSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("metrics", main, MetricsSettings)
