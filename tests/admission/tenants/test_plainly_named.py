"""Whose a command is, is read in one quick reading where that is told plainly: it tells what the careful one tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import SearchStrategy, integers, lists, one_of, sampled_from, text

from fallow.services.admission.service import _named_somehow, _plainly_named
from fallow.shared.events.codec.encoding import UNREAD
from tests.hypothesis_profile import reaches

STRANGE = ("7", "null", "true", "NaN", "[]", "{}", "[[[", "-Infinity", '"a\\u0062c"', '"\\ud800"', '"a\\u0000"', "")


PLAIN = sampled_from(('"vision"', '"train"', '"vision/train"', '"ada/x"', '"A B"', '""', f'"{"n" * 300}"', "null"))


def told() -> SearchStrategy[str]:
    """Anything that a sender may write behind a key, also what no reader takes."""
    return one_of(PLAIN, sampled_from(STRANGE), text(max_size=6).map(lambda found: f'"{found}"'), integers().map(str))


def objects(behind: SearchStrategy[str], *, keys: tuple[str, ...], size_max: int) -> SearchStrategy[str]:
    """An object of a few of these keys, which may stand twice, in any order."""
    part = sampled_from(keys).flatmap(lambda name: behind.map(lambda value: f'"{name}": {value}'))
    return lists(part, min_size=1, max_size=size_max).map(lambda parts: "{" + ", ".join(parts) + "}")


def commands() -> SearchStrategy[str]:
    """Submissions, with a job that is an object, and commands that name a job; some are strange, and some cut off."""
    job = objects(PLAIN, keys=("id", "tenant"), size_max=4)
    plain = one_of(
        job.map(lambda found: f'{{"cell": "a", "job": {found}}}'), objects(PLAIN, keys=("job", "tenant"), size_max=4)
    )
    keys = ("job", "id", "tenant", "cell")
    strange = objects(one_of(told(), objects(told(), keys=keys, size_max=3)), keys=keys, size_max=4)
    return one_of(plain, plain, plain, strange, strange.map(lambda found: found[:-3]))


@given(commands())
def test_the_quick_reading_tells_what_the_careful_one_tells(command: str) -> None:
    value = command.encode("utf-8", "surrogatepass")
    try:
        quick = _plainly_named(value)
    except UNREAD:
        reaches("the quick reading leaves a command to the careful one", True)
        return
    reaches("the quick reading leaves a command to the careful one", False)
    reaches("a job and its tenant are told", quick is not None and quick[1] is not None)
    assert quick == _named_somehow(value)
