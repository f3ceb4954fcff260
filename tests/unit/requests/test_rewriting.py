"""Rules in the shape of InferenceModelRewrite: what they match, in which order, and how they share out."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from picker.requests.rewritefile import read_rewrites
from picker.requests.rewriting import (
    Rewrite,
    RewriteError,
    Rule,
    Rules,
    Target,
    draw,
    header_target,
    read_rewrite,
)


def rewrite(
    name: str, *rules: dict[str, Any], created: str | None = None, pool: str = "p", **meta: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": name, **({"creationTimestamp": created} if created else {}), **meta},
        "spec": {"poolRef": {"name": pool}, "rules": list(rules)},
    }


def rule(*models: str, to: str = "", targets: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    matches = [{"model": {"type": "Exact", "value": model}} for model in models]
    return {"targets": targets or [{"modelRewrite": to}]} | ({"matches": matches} if matches else {})


def rules_of(*objects: dict[str, Any]) -> Rules:
    return Rules.of([read_rewrite(each, "x") for each in objects])


def target(rules: Rules, model: str) -> str | None:
    found = rules.find(model)
    return None if found is None else found.target(0.0)


def test_exact_goes_before_all_whatever_the_order() -> None:
    rules = rules_of(rewrite("old", rule(to="all"), created="2020-01-01T00:00:00Z"),
                     rewrite("new", rule("a", "b", to="exact"), created="2025-01-01T00:00:00Z"))  # fmt: skip
    assert [target(rules, model) for model in ("a", "b", "c", "")] == ["exact", "exact", "all", "all"]


def test_without_a_rule_for_all_others_are_left_alone() -> None:
    rules = rules_of(rewrite("one", rule("a", to="b")))
    assert (target(rules, "a"), target(rules, "A"), target(rules, "")) == ("b", None, None)


def test_the_older_object_goes_first_then_the_earlier_rule() -> None:
    new = rewrite("a-new", rule("m", to="new"), rule(to="all-new"), created="2025-01-01T00:00:00Z")
    old = rewrite(
        "z-old",
        rule("m", to="old-1"),
        rule("m", to="old-2"),
        rule(to="all-old"),
        created="2024-06-01T02:00:00+02:00",
    )
    ageless = rewrite("0", rule("m", to="ageless"))
    for objects in ([new, old, ageless], [ageless, old, new]):
        rules = rules_of(*objects)
        assert (target(rules, "m"), target(rules, "x")) == ("old-1", "all-old")


def test_objects_of_one_second_go_by_name_and_ageless_ones_as_written() -> None:
    same = [rewrite(name, rule("m", to=name), created="2025-01-01T00:00:00Z") for name in ("b", "a")]
    assert target(rules_of(*same), "m") == "a"
    assert target(rules_of(*(rewrite(name, rule("m", to=name)) for name in ("b", "a"))), "m") == "b"


def test_an_object_as_old_as_time_goes_before_such_as_tell_none() -> None:
    first = rewrite("first", rule(to="first"))
    oldest = rewrite("oldest", rule(to="oldest"), created="1970-01-01T00:00:00Z")
    assert target(rules_of(first, oldest), "m") == target(rules_of(oldest, first), "m") == "oldest"


def test_the_digest_tells_rules_apart_and_not_the_order_of_names() -> None:
    plain = rules_of(rewrite("one", rule("a", "b", "c", to="x")))
    assert plain.digest() == rules_of(rewrite("one", rule("c", "b", "a", to="x"))).digest()
    others = (
        rewrite("one", rule("a", "b", to="x")),
        rewrite("one", rule("a", "b", "c", to="y")),
        rewrite("two", rule("a", "b", "c", to="x")),
        rewrite("one", rule("a", "b", "c", targets=[{"modelRewrite": "x", "weight": 2}])),
    )
    assert len({plain.digest(), Rules().digest(), *(rules_of(other).digest() for other in others)}) == 6


def test_weights_share_out_and_zero_gets_nothing() -> None:
    one = Rule("r", frozenset(), (Target("a", 90), Target("none", 0), Target("b", 10)))
    got = Counter(one.target(draw(f"key-{number}", one.name)) for number in range(20_000))
    assert set(got) == {"a", "b"}
    assert abs(got["b"] / 20_000 - 0.1) < 0.01
    assert one.target(0.999999999999999999) == "b"
    assert Rule("r", frozenset(), (Target("a", 1), Target("z", 0))).target(1.0) == "a"


def test_a_key_draws_the_same_everywhere_and_rules_draw_apart() -> None:
    assert draw("key", "rule") == 0.09768782594298657
    drawn = [(draw(f"k{n}", "one") < 0.1, draw(f"k{n}", "two") < 0.1) for n in range(10_000)]
    assert 50 < sum(both == (True, True) for both in drawn) < 160


@pytest.mark.parametrize(
    ("headers", "model"),
    [
        ({}, None),
        ({"x-llm-d-model-name-rewrite": "new", "x-gateway-model-name-rewrite": "old"}, "new"),
        ({"x-gateway-model-name-rewrite": " old "}, "old"),
        ({"x-llm-d-model-name-rewrite": ""}, None),
        ({"x-llm-d-model-name-rewrite": "x" * 1025}, ""),
        ({"x-llm-d-model-name-rewrite": "a\x07b"}, ""),
        ({"x-llm-d-model-name-rewrite": b"caf\xe9".decode("utf-8", "replace")}, ""),
    ],
)
def test_the_header_that_names_a_model(headers: dict[str, str], model: str | None) -> None:
    assert header_target(headers) == model


def with_rule(entry: Any) -> dict[str, Any]:
    return rewrite("r", entry)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("text", "must be an object, not a string"),
        ({"kind": "Pod"}, "kind must be InferenceModelRewrite"),
        ({**rewrite("r"), "apiVersion": "v1"}, "apiVersion must be"),
        ({**rewrite("r"), "spec": None}, "spec must be an object, not null"),
        ({**rewrite("r"), "spec": {"rules": {}}}, "rules must be an array"),
        (with_rule({"targets": []}), "must name at least one model"),
        (with_rule({}), "targets must be an array"),
        (with_rule({"target": []}), "unknown field 'target'"),
        (with_rule(rule("a", to="")), "must be the name of a model"),
        (with_rule(rule("a", to="b\n")), "must be the name of a model"),
        (with_rule(rule("", to="b")), "matches[0].model.value must be the name"),
        (with_rule({"matches": [{}], "targets": [{"modelRewrite": "b"}]}), "must be an object, not null"),
        (
            with_rule({"matches": [{"models": {}}], "targets": [{"modelRewrite": "b"}]}),
            "unknown field 'models'",
        ),
        (
            with_rule(
                {"matches": [{"model": {"type": "Prefix", "value": "a"}}], "targets": [{"modelRewrite": "b"}]}
            ),
            "must be Exact",
        ),
        (
            with_rule(rule(targets=[{"modelRewrite": "a", "weight": 1}, {"modelRewrite": "b"}])),
            "a weight each",
        ),
        (with_rule(rule(targets=[{"modelRewrite": "a", "weight": 0}])), "above 0"),
        (with_rule(rule(targets=[{"modelRewrite": "a", "weight": -1}])), "from 0 to 1000000"),
        (with_rule(rule(targets=[{"modelRewrite": "a", "weight": True}])), "whole number"),
        (rewrite("r", rule(to="a"), created="yesterday"), "must be a time"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(entry: Any, said: str) -> None:
    with pytest.raises(RewriteError, match="document 1") as caught:
        read_rewrite(entry, "document 1")
    assert said in str(caught.value)


def read(text: str) -> list[str]:
    return [each.name for each in read_rewrites(text, pool="p", namespace="ns")]


def test_documents_arrays_and_lists_in_yaml_and_json_are_read() -> None:
    a, b = rewrite("a", rule(to="x")), rewrite("b", rule(to="y"), created="2025-01-01T00:00:00Z")
    assert read(yaml.safe_dump_all([a, b])) == ["a", "b"]
    assert read(yaml.safe_dump([a, b])) == ["a", "b"]
    assert read("---\n" + yaml.safe_dump({"kind": "InferenceModelRewriteList", "items": [a, b]})) == [
        "a",
        "b",
    ]
    assert read(json.dumps([a, b])) == ["a", "b"]
    assert read("[]") == []


def test_an_unquoted_time_is_the_same_time() -> None:
    text = yaml.safe_dump(rewrite("a", rule(to="x"), created="T")).replace(
        "creationTimestamp: T", "creationTimestamp: 2025-01-01T00:00:00Z"
    )
    (one,) = read_rewrites(text, pool="p", namespace="ns")
    assert (
        one.created == read_rewrite(rewrite("a", rule(to="x"), created="2025-01-01T00:00:00Z"), "x").created
    )


def test_objects_of_other_pools_and_namespaces_are_left_out() -> None:
    objects = [
        rewrite("mine", rule(to="x")),
        rewrite("same", rule(to="x"), namespace="ns"),
        rewrite("other", rule(to="x"), pool="q"),
        rewrite("away", rule(to="x"), namespace="elsewhere"),
        rewrite("any", rule(to="x"), pool=""),
    ]
    assert read(yaml.safe_dump_all(objects)) == ["mine", "ns/same", "any"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "{",
        "a: [",
        "\x00",
        "kind: InferenceModelRewrite",
        "[1]",
        "--- !!python/object:os.system {}",
    ],
)
def test_a_broken_file_is_refused_whole(text: str) -> None:
    with pytest.raises(RewriteError):
        read(text)


def test_rules_are_values() -> None:
    assert Rules.of([Rewrite("a", ())]) == Rules()
    assert rules_of(rewrite("a", rule("m", to="x"))) == rules_of(rewrite("a", rule("m", to="x")))
