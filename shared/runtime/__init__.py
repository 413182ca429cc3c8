"""What makes a process of a service: settings, clocks, logs, metrics, health and a graceful end."""
