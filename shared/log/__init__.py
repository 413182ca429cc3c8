"""The log: ordered, partitioned, kept. Everything that happens passes through it, and all state can be rebuilt from it.

`port.py` names what the project needs of a log, in bytes, and nothing more. `kafka.py` answers with Apache Kafka,
`memory.py` within one process (tests, simulation); one contract suite holds both to the same behaviour.
`machine/` decides without I/O; `topics.py` says which topics there are; `dead_letters.py` keeps what could not be read;
`delivery.py` is the order in which records of shared topics are handled and committed, over the port in `share.py`;
`faststream_recipe.py` is the only way in which this project subscribes through FastStream.
"""
