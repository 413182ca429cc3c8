"""`python -m services.queueing`."""

from services.queueing.app import main
from services.queueing.settings import QueueingSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("queueing", main, QueueingSettings)
