"""The state of a cell: jobs, nodes, arrays, dependencies, and the cell file."""
