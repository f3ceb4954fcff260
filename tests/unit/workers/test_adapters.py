"""Which names are adapters, and what labels, lists of models and metrics say of who holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import Report
from picker.requests.openai import Adapters
from picker.workers.adapters import MOST_NAMES, AdapterNames, Models, NoModels, labelled, read_models
from picker.workers.registry import Registry

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


@dataclass(frozen=True)
class Endpoint:
    address: str
    rank: int = 0
    labels: dict[str, str] = field(default_factory=dict)


def report(*loras: str, at: float = 0.0) -> Report:
    return Report(at, at, 0, 0, loras=frozenset(loras), max_loras=4)


def listing(*adapters: str, base: str = "m") -> Models:
    return Models(dict.fromkeys(adapters, base), frozenset({base}), frozenset(adapters))


def test_a_list_tells_adapters_by_their_parent() -> None:
    cards = [
        {"id": "m", "object": "model", "root": "/models/m", "parent": None},
        {"id": "sql", "root": "/loras/sql", "parent": "m"},
        {"id": "m-too"},
        {"id": "", "parent": "m"}, {"id": 3}, "x", None, {"id": "a\nb", "parent": "m"}, {"id": "x" * 600},
    ]  # fmt: skip
    models = read_models(orjson.dumps({"object": "list", "data": cards}))
    assert models == Models({"sql": "m"}, frozenset({"m", "m-too"}), frozenset({"sql"}))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"data": {}}', b"<html>", b"\xff", b"[" * 5000])
def test_what_is_no_list_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(NoModels):
        read_models(text)


json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "id", "parent"]), inner),
)


@given(json)
def test_no_answer_breaks_the_reading(answer: object) -> None:
    try:
        models = read_models(orjson.dumps(answer))
    except NoModels:
        return
    assert models.names == models.adapters.keys()
    assert not any(name in models.names for name in ("", None))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({}, None),
        ({"zone": "a"}, None),
        ({"loras": "a, b,,"}, {"a", "b"}),
        ({"loras": ""}, set()),
        ({"lora/a": "true", "lora/b": "", "lora/c": "false"}, {"a", "b"}),
        ({"loras": "a", "lora/b": ""}, {"a", "b"}),
    ],
)
def test_labels_tell_adapters(labels: dict[str, str], names: set[str] | None) -> None:
    assert labelled(labels) == names


def test_names_come_from_operators_labels_lists_and_metrics_alike() -> None:
    names = AdapterNames(["fixed"], "base")
    registry = Registry(adapters=names)
    registry.update([Endpoint(A, labels={"loras": "marked"}), Endpoint(B)])
    registry.heard(B, {0: report("running")})
    registry.listed(A, listing("listed", base="m"))
    assert dict(names) == {"fixed": "base", "marked": "base", "running": "base", "listed": "m"}
    assert "m" not in names
    assert len(names) == 4


def test_a_name_stays_an_adapter_when_it_rests_and_its_worker_is_gone() -> None:
    registry = Registry()
    registry.update([Endpoint(A)])
    registry.heard(A, {0: report("sql")})
    registry.heard(A, {0: report()})
    registry.update([])
    assert "sql" in registry.adapters


def test_what_some_worker_calls_a_base_model_is_no_adapter() -> None:
    registry = Registry(adapters=AdapterNames(base_model="big"))
    registry.update([Endpoint(A), Endpoint(B)])
    registry.listed(A, listing("sql", "m", "big", base="other"))
    assert "m" in registry.adapters
    assert "big" not in registry.adapters
    registry.listed(B, listing(base="m"))
    assert "m" not in registry.adapters
    assert set(registry.adapters) == {"sql"}
    with pytest.raises(KeyError):
        registry.adapters["m"]
    registry.update([Endpoint(A)])
    assert "m" in registry.adapters, "who called it so has left"


def test_known_names_are_bounded_and_fixed_ones_stay() -> None:
    names = AdapterNames(["fixed"])
    names.learn(f"n{n}" for n in range(MOST_NAMES + 10))
    assert len(names) == MOST_NAMES + 1
    assert names.forgotten == 10
    assert "fixed" in names
    assert "n9" not in names
    names.learn(["x" * 1000, "a\x00b", ""])
    assert len(names) == MOST_NAMES + 1


def test_all_sources_of_a_worker_count_and_metrics_only_while_fresh() -> None:
    registry = Registry(stale_seconds=5)
    registry.update([Endpoint(A, labels={"loras": "a"}), Endpoint(A, 1)])
    registry.listed(A, listing("b"))
    registry.heard(A, {0: report("c", at=10.0), 1: report(at=10.0)})
    assert registry.held(A, 11.0).names == {"a", "b", "c"}
    assert registry.held(A, 11.0).most == 4
    assert registry.held(A, 20.0).names == {"a", "b"}
    assert registry.held(f"{A}@1", 11.0).names == {"b"}
    registry.listed(A, None)
    assert registry.held(A, 20.0).listed is None
    assert registry.held("nobody:1", 0.0).names == frozenset()
    registry.update([Endpoint(A, labels={})])
    assert registry.held(A, 20.0).labelled is None


def test_a_rank_that_joins_later_has_its_addresss_list() -> None:
    registry = Registry()
    registry.update([Endpoint(A)])
    registry.listed(A, listing("sql"))
    registry.update([Endpoint(A), Endpoint(A, 1)])
    assert registry.held(f"{A}@1", 0.0).listed == frozenset({"sql"})


def test_a_request_names_an_adapter_as_workers_tell_it_or_as_sglang_writes_it() -> None:
    names = AdapterNames(["fixed"], "base")
    names.learn(["sql"], {"sql": "m"})
    adapters = Adapters(names, "base")
    assert adapters.of("sql") == {"lora": "sql", "base_model": "m"}
    assert adapters.of("fixed") == {"lora": "fixed", "base_model": "base"}
    assert adapters.of("m:sql") == {"lora": "sql", "base_model": "m"}
    for plain in ("m", "m:other", ":sql", ""):
        assert adapters.of(plain) == {"lora": "", "base_model": plain}
    assert Adapters(("sql",), "base").of("sql") == {"lora": "sql", "base_model": "base"}
