"""Label affinity: a must where no blocks are named, a price where they are."""

from __future__ import annotations

import pytest

from picker.core.criteria import Setup, Traits, WorkerTraits
from picker.criteria.labels import Labels, Pair, read_pair
from picker.criteria.testing import hold_to_contract

HERE = WorkerTraits("a:1", labels={"zone": "eu", "tier": "gold"})
THERE = WorkerTraits("b:1", labels={"zone": "us"})
BARE = WorkerTraits("c:1")


def made(*pairs: str) -> Labels:
    return Labels(Setup(label_affinity=pairs))


def test_a_must_bars_every_worker_without_the_value() -> None:
    wanted = made("X-Zone=zone").prepare(Traits(headers={"x-zone": " eu "}))
    assert wanted is not None
    assert [wanted.bars(one) for one in (HERE, THERE, BARE)] == ["", "zone is not 'eu'", "zone is not 'eu'"]
    assert wanted.blocks(THERE) == 0


def test_a_priced_pair_bars_nobody_and_charges_those_without_the_value() -> None:
    wanted = made("x-zone=zone:64", "x-tier=tier:0.5").prepare(
        Traits(headers={"x-zone": "us", "x-tier": "gold"})
    )
    assert wanted is not None
    assert [wanted.bars(one) for one in (HERE, THERE, BARE)] == ["", "", ""]
    assert [wanted.blocks(one) for one in (HERE, THERE, BARE)] == [64, 0.5, 64.5]


@pytest.mark.parametrize("headers", [{}, {"x-zone": ""}, {"x-zone": "  "}, {"zone": "eu"}])
def test_a_request_without_the_header_is_left_alone(headers: dict[str, str]) -> None:
    assert made("x-zone=zone", "x-tier=tier:3").prepare(Traits(headers=headers)) is None


def test_pairs_are_read_with_labels_as_kubernetes_writes_them() -> None:
    assert read_pair("X-Zone = topology.kubernetes.io/zone") == Pair("x-zone", "topology.kubernetes.io/zone")
    assert read_pair("a=b:12.5") == Pair("a", "b", 12.5)


@pytest.mark.parametrize(
    "text", ["x", "=b", "a=", "a=b:", "a=b:x", "a=b:-1", "a=b:nan", "a=b:inf", "a=b:1e9"]
)
def test_a_pair_that_makes_no_sense_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"PICKER_LABEL_AFFINITY.*" + text):
        read_pair(text)


@pytest.mark.parametrize("value", ["a", "\x00" * 500, "\u4e16" * 9])
def test_it_keeps_the_contract_whatever_clients_write(value: str) -> None:
    setup = Setup(label_affinity=("x-zone=zone", "x-tier=tier:8"))
    hold_to_contract(Labels, setup=setup, requests=[Traits(headers={"x-zone": value, "x-tier": value})])
