"""Free capacity, and workers packed into it: which nodes and devices."""
