"""The driver of real processes: a supervisor for each worker, and folders that outlive the agent."""
