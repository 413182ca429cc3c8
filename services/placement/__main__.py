"""`python -m services.placement`: the writer, or a standby of it."""

from services.placement.app import writer
from services.placement.settings import PlacementSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("placement", writer.main, PlacementSettings)
