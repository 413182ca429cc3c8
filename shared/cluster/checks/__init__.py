"""What must hold of a state, a log and the nodes' diaries, checked by code of its own."""
