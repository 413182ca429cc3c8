"""Errors with which a process ends in one clear line, because a person has to do something; all others are defects."""

from __future__ import annotations

from dataclasses import dataclass

FAILED, WRONG_SETTINGS, FENCED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Ending:
    """The line that is logged, and the exit code."""

    event: str
    exit_code: int


# By name: the runtime does not know logs and cells.
ENDINGS: dict[str, Ending] = {
    "SettingsError": Ending("the settings have an error", WRONG_SETTINGS),
    "CellFileError": Ending("the cell file has an error", WRONG_SETTINGS),
    "NodesFileError": Ending("the nodes file has an error", WRONG_SETTINGS),
    "WrongOffer": Ending("the node cannot belong to its pool", WRONG_SETTINGS),
    "StateFolderInUse": Ending("the state folder is in use", WRONG_SETTINGS),
    "StateFolderUnusable": Ending("the state folder cannot be used", WRONG_SETTINGS),
    "FolderOfAnotherFormat": Ending("the folder is of another release", WRONG_SETTINGS),
    "WorkerUsersUnusable": Ending("workers cannot have users of their own", WRONG_SETTINGS),
    "NodeTakenOver": Ending("another agent speaks for the node", FAILED),
    "WrongTopics": Ending("the topics are not as declared", WRONG_SETTINGS),
    "OtherRelease": Ending("fenced: the decision log is another release's, operator action needed", FENCED),
    "DamagedLog": Ending("fenced: the decision log is damaged, operator action needed", FENCED),
    "UnwritableDecision": Ending("fenced: no record can hold the next decision, operator action needed", FENCED),
    "LogTruncated": Ending("the decision log no longer holds what is needed", FAILED),
}


def ending_of(error: BaseException) -> tuple[Ending, str] | None:
    """How the process ends for this error, or for the first of a group, and the reason in words; None for a defect."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := ending_of(inner)) is not None), None)
    for kind in type(error).__mro__:
        if kind.__name__ in ENDINGS:
            return ENDINGS[kind.__name__], str(error)
    return None
