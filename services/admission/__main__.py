"""`python -m fallow.services.admission`."""

from fallow.services.admission.app.answering import main
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.runtime.process import serve

if __name__ == "__main__":
    serve("admission", main, AdmissionSettings)
