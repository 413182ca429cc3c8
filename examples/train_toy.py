"""A toy training job: data-parallel gradient descent on a linear model, in nothing but Python's standard library.

It shows what a real training job does under Fallow:

* It reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torch does, and its workers meet at rank 0.
* It writes a checkpoint every so many steps, and one more when it is told to stop (SIGTERM), and then ends.
* It begins where the newest checkpoint in FALLOW_CHECKPOINT_DIR ends.

All workers make the same steps, so an interrupted training comes to the same weights as one that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

SAMPLES, FEATURES = 256, 3
TRUE_WEIGHTS = (3.0, -2.0, 0.5)
TRUE_BIAS, NOISE = 1.0, 0.1
LEARNING_RATE = 0.1
MEET_WAIT_S = 60.0

Sample = tuple[tuple[float, ...], float]
Weights = list[float]  # the bias comes last


def main() -> None:
    """Train until the last step, or until told to stop."""
    options = arguments()
    notice = Notice()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    folder = Path(os.environ.get("FALLOW_CHECKPOINT_DIR", "."))
    begin, weights = read_checkpoint(folder / "checkpoint.json")
    shard = samples()[rank::world]
    say(rank, f"{len(shard)} samples, from step {begin} on")
    gang = Leader(world) if rank == 0 else Follower(rank)
    for step in range(begin + 1, options.steps + 1):
        answer = gang.exchange({"gradient": gradient(weights, shard), "stop": notice.is_given})
        weights = descend(weights, answer["gradients"])
        is_last = answer["stop"] or step == options.steps
        if rank == 0 and (is_last or step % options.checkpoint_every == 0):
            write_whole(folder / "checkpoint.json", {"step": step, "weights": weights})
        if answer["stop"]:
            say(rank, f"told to stop, after step {step}")
            return
        time.sleep(options.step_ms / 1000)
    if rank == 0:
        result = {"step": options.steps, "begin": begin, "loss": loss(weights), "weights": weights}
        write_whole(folder / "result.json", result)
        say(rank, f"loss {result['loss']:.6f} after {options.steps} steps")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--step-ms", type=int, default=100, help="how long a step pretends to take")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between two checkpoints")
    return parser.parse_args()


def say(rank: int, text: str) -> None:
    """Print a line for the reader of the worker's output."""
    print(f"worker {rank}: {text}", flush=True)


class Notice:
    """Whether this worker was told to stop. It ends with all others, after a step that all have made."""

    def __init__(self) -> None:
        self.is_given = False
        signal.signal(signal.SIGTERM, self._give)

    def _give(self, number: int, frame: FrameType | None) -> None:
        self.is_given = True


# The model.


def samples() -> list[Sample]:
    """The data, the same on every worker."""
    chance = random.Random(7)
    found = []
    for _ in range(SAMPLES):
        x = tuple(chance.uniform(-1, 1) for _ in range(FEATURES))
        y = sum(w * v for w, v in zip(TRUE_WEIGHTS, x, strict=True)) + TRUE_BIAS + chance.uniform(-NOISE, NOISE)
        found.append((x, y))
    return found


def error(weights: Weights, sample: Sample) -> float:
    """How far the model is off."""
    x, y = sample
    return sum(w * v for w, v in zip(weights, (*x, 1.0), strict=True)) - y


def gradient(weights: Weights, shard: list[Sample]) -> Weights:
    """This worker's part of the gradient of the mean squared error."""
    total = [0.0] * len(weights)
    for sample in shard:
        off = 2 * error(weights, sample) / SAMPLES
        for place, value in enumerate((*sample[0], 1.0)):
            total[place] += off * value
    return total


def descend(weights: Weights, gradients: list[Weights]) -> Weights:
    """One step down, with all workers' gradients, in the order of their ranks."""
    return [w - LEARNING_RATE * sum(parts) for w, *parts in zip(weights, *gradients, strict=True)]


def loss(weights: Weights) -> float:
    """The mean squared error over all data."""
    return sum(error(weights, sample) ** 2 for sample in samples()) / SAMPLES


# The gang.


class Leader:
    """Rank 0: collects what all have to say, and tells all."""

    def __init__(self, world: int) -> None:
        self._lines: list[TextIO] = []
        if world == 1:
            return
        with socket.create_server(meeting_place()) as server:
            server.settimeout(MEET_WAIT_S)
            found: dict[int, TextIO] = {}
            while len(found) < world - 1:
                line = server.accept()[0].makefile("rw", encoding="utf-8")
                found[int(line.readline())] = line
        self._lines = [found[rank] for rank in sorted(found)]

    def exchange(self, mine: dict[str, Any]) -> dict[str, Any]:
        """The gradients of all, and whether any worker was told to stop."""
        said = [mine, *(read(line) for line in self._lines)]
        answer = {"gradients": [one["gradient"] for one in said], "stop": any(one["stop"] for one in said)}
        for line in self._lines:
            write(line, answer)
        return answer


class Follower:
    """Every other rank."""

    def __init__(self, rank: int) -> None:
        self._line = connect().makefile("rw", encoding="utf-8")
        write(self._line, rank)

    def exchange(self, mine: dict[str, Any]) -> dict[str, Any]:
        """The gradients of all, and whether any worker was told to stop, as rank 0 tells them."""
        write(self._line, mine)
        return read(self._line)


def meeting_place() -> tuple[str, int]:
    """Where the gang meets."""
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def connect() -> socket.socket:
    """A connection to rank 0, which may still be on its way."""
    end_s = time.monotonic() + MEET_WAIT_S
    while True:
        try:
            return socket.create_connection(meeting_place())
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def write(line: TextIO, said: Any) -> None:
    """One line to another worker."""
    line.write(json.dumps(said) + "\n")
    line.flush()


def read(line: TextIO) -> dict[str, Any]:
    """One line from another worker; the end of this one when the other is gone."""
    text = line.readline()
    if not text:
        sys.exit("another worker is gone")
    found: dict[str, Any] = json.loads(text)
    return found


# Checkpoints.


def read_checkpoint(path: Path) -> tuple[int, Weights]:
    """The last step that was made, and the weights after it."""
    if not path.exists():
        return 0, [0.0] * (FEATURES + 1)
    known = json.loads(path.read_text(encoding="utf-8"))
    return known["step"], known["weights"]


def write_whole(path: Path, content: dict[str, Any]) -> None:
    """Write a file so that a reader finds all of it or none, even if this worker is killed now."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(content), encoding="utf-8")
    unfinished.replace(path)


if __name__ == "__main__":
    main()
