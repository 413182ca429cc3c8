"""What Redis users of the view need, in the words of Redis's ACL: for the deployment, and held true by a test.

Nobody may EVAL or load a script: the library is loaded by an administrator, or by the projector where it is trusted to.
"""

from __future__ import annotations

_CONNECTION = "+ping +hello +auth +select +client|setinfo"
_READS = "+fcall_ro +hget +hmget +hgetall +hvals +hlen +zcard +zrank +zlexcount +zrangebylex"
_WRITES = "+fcall +hset +hdel +zadd +zrem +unlink"

LOADS_FUNCTIONS = "+function|load"
"""More for the one who loads the library."""


def writer_rights(namespace: str) -> str:
    """For the projector."""
    return f"resetkeys ~{namespace}:* resetchannels -@all {_CONNECTION} {_READS} {_WRITES}"


def reader_rights(namespace: str) -> str:
    """For the gateway, the command line and everybody else."""
    return f"resetkeys %R~{namespace}:* resetchannels -@all {_CONNECTION} {_READS}"
