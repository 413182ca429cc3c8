"""A member in a process of its own, to be killed: `python -m tests.contract.worlds.member_process BOOTSTRAP GROUP
TOPIC`.
"""

from __future__ import annotations

import asyncio
import sys

from fallow.shared.log.kafka.log import KafkaLog


async def run(bootstrap: str, group: str, topic: str) -> None:
    member = KafkaLog(bootstrap, "killed").member(group, topic)
    await member.start()
    while True:
        sys.stdout.write(f"{sorted(await member.changed())}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:4]))
