"""Criteria are found by name among installed packages; whatever is wrong with one stops the start and says why."""

from __future__ import annotations

import pytest

from picker import settings
from picker.core.criteria import Setup, Traits, WorkerTraits
from picker.criteria.loading import CriteriaError, open_criteria
from picker.settings import SettingsError
from picker.wiring import open_criteria as wired
from tests.unit.criteria.conftest import Install

GOOD = """
class Good:
    seam = 1
    def __init__(self, setup):
        self.size = setup.block_size
    def prepare(self, request):
        return self
    def blocks(self, worker):
        return self.size
"""


def test_an_installed_criterion_is_found_made_and_asked(install: Install) -> None:
    install("good_package", GOOD, good="good_package:Good")
    criteria = open_criteria(["good"], Setup(block_size=32))
    assert criteria.names == ("good",)
    assert criteria.weigh(criteria.prepare(Traits()), [WorkerTraits("a:1")]).added == {"good": {"a:1": 32.0}}


def test_they_are_asked_in_the_order_in_which_they_are_named(install: Install) -> None:
    install("good_package", GOOD, one="good_package:Good", two="good_package:Good")
    assert open_criteria(["two", "one"], Setup()).names == ("two", "one")
    assert open_criteria([], Setup()).names == ()


@pytest.mark.parametrize(
    ("code", "value", "said"),
    [
        ("import nothing_of_that_name", "broken:Made", "cannot be loaded: ModuleNotFoundError"),
        ("x = 1 / 0", "broken:Made", "cannot be loaded: ZeroDivisionError"),
        (GOOD, "broken:Other", "cannot be loaded: AttributeError"),
        ("Made = 3", "broken:Made", "is int; it must be a class or a function"),
        (
            "def Made(setup): raise ValueError('no zone is set')",
            "broken:Made",
            "cannot be made: ValueError: no zone",
        ),
        ("def Made(setup): return None", "broken:Made", "does not say for which seam"),
        (
            GOOD.replace("seam = 1", "seam = 2"),
            "broken:Good",
            "is written for seam 2, and this picker has seam 1",
        ),
        (GOOD.replace("prepare", "look"), "broken:Good", "has no method prepare"),
    ],
)
def test_a_broken_criterion_stops_the_start_with_its_reason(
    install: Install, code: str, value: str, said: str
) -> None:
    install("broken", code, mine=value)
    with pytest.raises(CriteriaError, match="'mine'") as error:
        open_criteria(["mine"], Setup())
    assert said in str(error.value)


def test_an_unknown_name_stops_the_start_with_the_nearest_known_one(install: Install) -> None:
    install("good_package", GOOD, region="good_package:Good")
    with pytest.raises(CriteriaError, match="did you mean 'region'"):
        open_criteria(["regoin"], Setup())
    with pytest.raises(CriteriaError, match="known are labels, region"):
        open_criteria(["zzzzzzzz"], Setup())


def test_a_name_that_two_packages_offer_is_refused_with_both(install: Install) -> None:
    install("first_package", GOOD, good="first_package:Good")
    install("other_package", GOOD, good="other_package:Good", labels="other_package:Good")
    with pytest.raises(CriteriaError, match=r"first_package .* other_package"):
        open_criteria(["good"], Setup())
    with pytest.raises(CriteriaError, match="several packages"):
        open_criteria(["labels"], Setup(label_affinity=("a=b",)))


def test_names_stand_once_and_there_are_not_too_many() -> None:
    with pytest.raises(CriteriaError, match="twice"):
        open_criteria(["labels", "labels"], Setup(label_affinity=("a=b",)))
    with pytest.raises(CriteriaError, match="at most 16"):
        open_criteria([str(n) for n in range(17)], Setup())


def test_settings_name_the_variable_and_what_to_do() -> None:
    with pytest.raises(
        SettingsError, match=r"^PICKER_CRITERIA: no criterion is called 'lables'; did you mean 'labels'"
    ):
        wired(settings.load({}, criteria="lables"))
    with pytest.raises(
        SettingsError, match=r"^PICKER_CRITERIA: 'labels' cannot be made: .* 'x-zone' is no pair"
    ):
        wired(settings.load({}, criteria="labels", label_affinity="x-zone"))
    with pytest.raises(SettingsError, match=r"^PICKER_LABEL_AFFINITY: .* PICKER_CRITERIA does not name that"):
        wired(settings.load({}, label_affinity="x-zone=zone"))
    assert wired(settings.load({}, criteria="labels", label_affinity="x-zone=zone")).names == ("labels",)
    assert wired(settings.load({})).names == ()
