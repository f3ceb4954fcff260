"""One seed, one run: the same arrivals, the same faults, in the same order."""

from dataclasses import replace
from itertools import pairwise

import pytest

from chaos.load import OpenLoop
from chaos.plan import plan
from chaos.scenario import Scenario
from chaos.suites import scenarios
from chaos.topology import Topology, TopologyError

ALL = scenarios()


def test_equal_seeds_give_equal_arrivals_and_others_do_not() -> None:
    load = OpenLoop(rate=30, bursts=((3.0, 5),))
    assert load.arrivals("7", 10) == load.arrivals("7", 10)
    assert load.arrivals("7", 10) != load.arrivals("8", 10)


def test_a_longer_load_begins_like_a_shorter_one() -> None:
    load = OpenLoop(rate=30)
    short = load.arrivals("7", 5)
    assert load.arrivals("7", 10)[: len(short)] == short


def test_arrivals_come_in_time_and_at_their_rate() -> None:
    found = OpenLoop(rate=50).arrivals("1", 40)
    times = [each.at for each in found]
    assert times == sorted(times)
    assert 1700 < len(found) < 2300
    assert [each.number for each in found] == list(range(len(found)))


def test_a_burst_is_at_once() -> None:
    found = OpenLoop(rate=1, bursts=((2.0, 40),)).arrivals("1", 10)
    assert sum(each.at == 2.0 for each in found) == 40


def test_turns_of_a_conversation_repeat_what_was_said() -> None:
    found = OpenLoop(rate=6, conversations=2).arrivals("1", 5)
    first = [each.prompt for each in found if each.conversation == 0]
    assert len(first) > 2
    assert all(later.startswith(earlier) for earlier, later in pairwise(first))


def test_a_herd_is_all_the_same() -> None:
    found = OpenLoop(rate=30, equal=True).arrivals("1", 5)
    assert len({each.prompt for each in found}) == 1


@pytest.mark.parametrize("scenario", ALL, ids=lambda each: each.name)
async def test_equal_seeds_give_equal_faults(scenario: Scenario) -> None:
    once, again = [await plan(scenario, seed=3, plane="redis") for _ in range(2)]
    assert once == again


@pytest.mark.parametrize("scenario", ALL, ids=lambda each: each.name)
async def test_every_scenario_demands_that_something_happened_and_that_something_holds(
    scenario: Scenario,
) -> None:
    made = await plan(scenario, seed=3, plane=scenario.planes[0])
    assert scenario.says
    assert scenario.suites
    if made.whole:
        assert any(each.startswith("must have happened") for each in made.demands)
        assert any(each.startswith("must hold") for each in made.demands)
        assert made.seconds < scenario.budget


async def test_another_seed_may_choose_another_replica() -> None:
    scenario = next(each for each in ALL if each.name == "replica_killed_in_a_burst")
    steps = {(await plan(scenario, seed=seed, plane="redis")).steps for seed in range(20)}
    assert len(steps) == 3


def test_names_of_scenarios_are_unique() -> None:
    names = [each.name for each in ALL]
    assert len(names) == len(set(names))


def test_equal_topologies_share_a_key() -> None:
    assert Topology().key == Topology().key
    assert Topology().key != Topology(replicas=2).key
    assert Topology().on("nats").key != Topology().key


@pytest.mark.parametrize(
    ("topology", "what"),
    [
        (Topology(replicas=0), "at least one"),
        (Topology(plane="nats", sync="atomic"), "cannot choose and book"),
        (Topology(links=("picker-9>plane",)), "matches none"),
        (Topology(plane="nats", sentinels=True), "sentinels need"),
        (Topology(sentinels=True, links=("*>plane",)), "past every wire"),
    ],
)
def test_a_topology_that_cannot_be_says_why(topology: Topology, what: str) -> None:
    with pytest.raises(TopologyError, match=what):
        topology.check()


def test_links_are_patterns() -> None:
    topology = replace(Topology(replicas=2), links=("*>plane", "envoy>picker-1"))
    assert topology.wired_links() == ("picker-0>plane", "picker-1>plane", "envoy>picker-1")
