"""`python -m fallow.services.loaning`."""

from fallow.services.loaning.app import main
from fallow.services.loaning.settings import LoaningSettings
from fallow.shared.runtime.process import serve

if __name__ == "__main__":
    serve("loaning", main, LoaningSettings)
