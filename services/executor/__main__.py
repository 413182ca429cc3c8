"""`python -m fallow.services.executor`: one executor process; with `agent` the agent of this machine."""

import sys

from fallow.services.executor.app import agent, wiring
from fallow.services.executor.processes.supervisor import hide_own_memory
from fallow.services.executor.settings import AgentSettings, ExecutorSettings
from fallow.shared.runtime.process import serve

if __name__ == "__main__":
    if sys.argv[1:] == ["agent"]:
        hide_own_memory()
        serve("agent", agent.main, AgentSettings)
    else:
        serve("executor", wiring.main, ExecutorSettings)
