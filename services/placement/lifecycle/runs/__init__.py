"""Events of runs: status, timeouts, retries, replicas that enter and leave."""
