"""What the search remembers from one look to the next: what it has proposed, and what came of it.

Nothing of it is needed to be right: placement looks at each proposal on the newest state. It keeps a job from being
asked for twice at a time, and one that was refused from being asked for again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.services.loaning.policy.preemption.search import Found
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision

PATIENCE_MS = 10_000
"""A proposal without an answer is given up after so much cell time: its record may be lost."""

PAUSE_FIRST_MS = 1_000
PAUSE_MAX_MS = 60_000
"""A job for which a proposal was refused is looked at again after a pause, each time after twice as long a one."""


WORDS_MS = 60_000
"""A job for which idle room would do once nodes speak takes nothing from others for so long."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was proposed for a job and is not answered yet."""

    proposal: str
    found: Found
    at_ms: int


@dataclass(slots=True)
class Pause:
    """Until when nothing is proposed for a job, and how often in a row it was refused."""

    until_ms: int
    refusals: int


@dataclass(slots=True)
class Memory:
    """By waiting job what was proposed for it (`asked`), for which ones nothing is at the moment (`paused`), and since
    when one waits only for words of nodes (`without_words`).
    """

    asked: dict[str, Asked] = field(default_factory=dict)
    paused: dict[str, Pause] = field(default_factory=dict)
    without_words: dict[str, int] = field(default_factory=dict)
    _job_of: dict[str, str] = field(default_factory=dict)

    def on_proposed(self, job: str, asked: Asked) -> None:
        """This was proposed for a job."""
        self.asked[job] = asked
        self._job_of[asked.proposal] = job

    def on_accepted(self, proposal: str) -> None:
        """Placement makes the room: the state says so from here on."""
        job = self._forget(proposal)
        if job is not None:
            self.paused.pop(job, None)

    def on_refused(self, proposal: str, at_ms: int) -> None:
        """Placement does not."""
        job = self._forget(proposal)
        if job is not None:
            refusals = self.paused[job].refusals + 1 if job in self.paused else 1
            pause_ms = min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(refusals - 1, 16))
            self.paused[job] = Pause(at_ms + pause_ms, refusals)

    def on_folded(self, decision: Decision) -> None:
        """A decision is in force: answers are in it, and jobs that wait no more."""
        for effect in decision.effects:
            match effect:
                case e.RoomHeld():
                    self.on_accepted(effect.proposal)
                case e.ProposalRefused():
                    self.on_refused(effect.proposal, decision.at_ms)
                case e.JobStarted() | e.JobCancelled() | e.JobFailed() | e.JobHeld():
                    self._over(effect.job)
                case _:
                    pass

    def on_take_over(self) -> None:
        """This process proposes from here on; what it remembers is of an earlier time."""
        self.asked.clear()
        self.paused.clear()
        self.without_words.clear()
        self._job_of.clear()

    def is_open(self, job: str, now_ms: int) -> bool:
        """Whether a proposal for the job waits for its answer. One that waits too long is given up."""
        asked = self.asked.get(job)
        if asked is not None and now_ms - asked.at_ms >= PATIENCE_MS:
            self.on_refused(asked.proposal, now_ms)
            asked = None
        return asked is not None

    def is_paused(self, job: str, now_ms: int) -> bool:
        """Whether nothing is to be proposed for the job yet."""
        pause = self.paused.get(job)
        return pause is not None and now_ms < pause.until_ms

    def waits_for_words(self, job: str, now_ms: int) -> int:
        """Until when nobody yields to a job for which idle room would do once nodes speak."""
        return self.without_words.setdefault(job, now_ms) + WORDS_MS

    def next_ms(self, looked_ms: int) -> int | None:
        """When a pause ends next, or the patience with a proposal, behind the last look."""
        times = [pause.until_ms for pause in self.paused.values()]
        times += [asked.at_ms + PATIENCE_MS for asked in self.asked.values()]
        return min((at_ms for at_ms in times if at_ms > looked_ms), default=None)

    def _over(self, job: str) -> None:
        self.without_words.pop(job, None)
        self.paused.pop(job, None)
        asked = self.asked.pop(job, None)
        if asked is not None:
            self._job_of.pop(asked.proposal, None)

    def _forget(self, proposal: str) -> str | None:
        job = self._job_of.pop(proposal, None)
        if job is not None:
            self.asked.pop(job, None)
        return job
