"""What own criteria hear of a request's priority, where it names an objective."""

from __future__ import annotations

import pytest

from picker import settings
from picker.core.adapters import Held
from picker.core.criteria import Traits, WorkerTraits
from picker.criteria.judging import Criteria
from picker.eligibility import Eligibility
from picker.requests.ask import Api, Ask, Standing


class Nobody:
    """Facts about no workers."""

    def held(self, worker: str, now: float) -> Held:
        raise NotImplementedError

    def traits(self, worker: str, now: float) -> WorkerTraits:
        raise NotImplementedError

    @property
    def mixed(self) -> bool:
        raise NotImplementedError

    def serves(self, worker: str, model: str) -> bool | None:
        raise NotImplementedError


class Listening:
    """A criterion that keeps what it hears and has nothing to say."""

    seam = 1

    def __init__(self) -> None:
        self.heard: list[Traits] = []

    def prepare(self, request: Traits) -> None:
        self.heard.append(request)


@pytest.mark.parametrize(
    ("objective", "own", "heard"),
    [
        ("critical", None, -10),
        ("critical", 3, 3),
        ("unknown", None, None),
        ("", None, None),
        ("batch", None, 5),
    ],
)
def test_an_objective_gives_its_priority_to_requests_without_one(
    objective: str, own: int | None, heard: int | None
) -> None:
    listening = Listening()
    eligibility = Eligibility(
        settings.load({}).price,
        known=Nobody(),
        criteria=Criteria([("listening", listening)]),
        objectives={"critical": 10, "batch": -5}.get,
    )
    ask = Ask(Api.CHAT, standing=Standing(objective=objective, priority=own))
    eligibility.prepare(ask, {}, tokens=1, known=True)
    assert [each.priority for each in listening.heard] == [heard]
