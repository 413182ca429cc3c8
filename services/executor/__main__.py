"""`python -m services.executor`: one executor process."""

from services.executor.app import main
from services.executor.settings import ExecutorSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("executor", main, ExecutorSettings)
