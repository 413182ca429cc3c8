"""One cell in virtual time without faults: the real services hand their events to each other as objects."""
