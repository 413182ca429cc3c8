"""Jobs that yield to a waiting one: whether a proposal of that is carried out, and what becomes of the room."""
