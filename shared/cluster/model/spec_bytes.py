"""How much memory the texts of a specification take in every process that folds the log. The number of jobs bounds what
each of them takes at least; what one may take beyond that is a thousand times as much, and is counted here.
"""

from __future__ import annotations

from fallow.shared.events.fields.values import JobSpec, ProcessRun

TEXT_BYTES = 64
"""What a text takes besides its characters: the object, and its place in a table. Without it a table of 60,000 empty
texts would count for a tenth of what it takes.
"""

CHARACTER_BYTES_MAX = 4
"""A text of which one sign is no ASCII may take so much for each of its signs."""

NUMBER_BYTES = 40


def spec_bytes(spec: JobSpec) -> int:
    """About how many bytes this specification takes beyond the plainest one, which counts nothing.

    It is a function of the specification alone, so every reader of the log counts alike and no record has to tell it;
    and it costs less than to read the same texts. An element of an array counts as a job: only the process that
    accepted it has its texts in common with the others, and all who read the log or a snapshot have them once for each
    element.
    """
    texts, run, found = spec.pools, spec.run, 0
    if spec.node_labels or spec.tolerations:
        texts = texts + spec.node_labels + spec.tolerations
    if type(run) is ProcessRun:
        texts = (*texts, *run.argv, *run.env, *run.env.values())
        if run.dir is not None or run.checkpoint_dir is not None:
            texts = (*texts, run.dir or "", run.checkpoint_dir or "")
    if spec.after:
        texts = (*texts, *(each.job for each in spec.after))
        found = len(spec.after) * TEXT_BYTES
    if spec.scaling:
        found += len(spec.scaling) * NUMBER_BYTES
    together = "".join(texts)  # one call that looks at all of them: each may be one of 60,000
    found += TEXT_BYTES * len(texts)
    return found + (len(together) if together.isascii() else _characters_bytes(texts))


def _characters_bytes(texts: tuple[str, ...]) -> int:
    return sum(len(text) * (1 if text.isascii() else CHARACTER_BYTES_MAX) for text in texts)
