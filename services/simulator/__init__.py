"""One engine for virtual time: worlds of faults, traces and what-if, and the checker that judges them."""
