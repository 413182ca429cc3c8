"""What Redis users of the view need, in the words of Redis's ACL: for the deployment, and held true by a test.

No user may EVAL or load a script: the library is loaded by a user of its own, who reaches no key.
"""

from __future__ import annotations

_CONNECTION = "+ping +hello +auth +select +client|setinfo"
_READS = "+fcall_ro +hget +hmget +hgetall +hvals +hlen +zcard +zrank +zlexcount +zrangebylex"
_WRITES = "+fcall +hset +hdel +zadd +zrem +unlink"

_LOADS = "+fcall_ro +function|load +function|list"


def writer_rights(namespace: str) -> str:
    """For the projector."""
    return f"resetkeys ~{namespace}:* resetchannels -@all {_CONNECTION} {_READS} {_WRITES}"


def reader_rights(namespace: str) -> str:
    """For the gateway, the command line and everybody else."""
    return f"resetkeys %R~{namespace}:* resetchannels -@all {_CONNECTION} {_READS}"


def loader_rights() -> str:
    """For `fallow view load`, which puts the functions into Redis and looks which ones are there."""
    return f"resetkeys resetchannels -@all {_CONNECTION} {_LOADS}"
