"""`python -m services.executor`: one executor process; with `agent` the agent of the machine on which it runs."""

import sys

from services.executor.app import agent, wiring
from services.executor.processes.supervisor import hide_own_memory
from services.executor.settings import AgentSettings, ExecutorSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    if sys.argv[1:] == ["agent"]:
        hide_own_memory()
        serve("agent", agent.main, AgentSettings)
    else:
        serve("executor", wiring.main, ExecutorSettings)
