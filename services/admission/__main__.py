"""`python -m services.admission`."""

from services.admission.app.answering import main
from services.admission.settings import AdmissionSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("admission", main, AdmissionSettings)
