"""`python -m fallow.services.queueing`."""

from fallow.services.queueing.app import main
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.runtime.process import serve

if __name__ == "__main__":
    serve("queueing", main, QueueingSettings)
