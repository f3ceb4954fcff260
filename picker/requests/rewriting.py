"""
Which model a request goes to instead of the one it names: rules as values, and what they choose. Pure.

Rules have the shape of ``InferenceModelRewrite`` (``inference.networking.x-k8s.io/v1alpha2``). An exact match goes
before a rule that matches all; then the older object before the newer, then the earlier rule of an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import xxhash

from picker.requests.fields import MAX_NAME, kind

REWRITE_HEADERS = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
"""Headers by which a client, or the gateway before us, names the model itself; the first one present counts."""

MAX_WEIGHT = 1_000_000
MAX_RULES = 10_000
"""Most rules of all objects together; each may match and target as many models."""
MAX_LIST = 1000
"""Most matches, and most targets, of one rule."""

_GROUPS = ("inference.networking.x-k8s.io/", "llm-d.ai/")


class RewriteError(ValueError):
    """An object that cannot be used; the message names the place, what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model, and its share of the requests."""

    model: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one object."""

    name: str
    """The object's name and the rule's place in it."""
    models: frozenset[str]
    """Names that it matches, exactly; empty: every name, and none."""
    targets: tuple[Target, ...]

    def target(self, draw: float) -> str:
        """The model for a draw from [0, 1): each gets its weight's share of the draws."""
        left = draw * sum(target.weight for target in self.targets)
        for target in self.targets:
            left -= target.weight
            if left < 0:
                return target.model
        return next(target.model for target in reversed(self.targets) if target.weight)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One ``InferenceModelRewrite``."""

    name: str
    """``namespace/name``, or ``name`` where it says no namespace."""
    rules: tuple[Rule, ...]
    pool: str = ""
    """Name of the pool that it is for; empty: it does not say."""
    namespace: str = ""
    created: float | None = None
    """``creationTimestamp``, Unix seconds; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a pool, in the order in which they count."""

    exact: Mapping[str, Rule] = field(default_factory=dict)
    generic: Rule | None = None
    rules: tuple[Rule, ...] = ()

    @staticmethod
    def of(rewrites: Sequence[Rewrite]) -> Rules:
        """Merge objects: older ones first; such as tell no time come last, in the order given."""
        aged = sorted(rewrites, key=_age)
        rules = tuple(rule for each in aged for rule in each.rules)
        exact: dict[str, Rule] = {}
        for rule in rules:
            for model in rule.models:
                exact.setdefault(model, rule)
        return Rules(exact, next((rule for rule in rules if not rule.models), None), rules)

    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal, on any replica, where all rules are and their order is."""
        told = [
            (rule.name, sorted(rule.models), [(to.model, to.weight) for to in rule.targets])
            for rule in self.rules
        ]
        return f"{xxhash.xxh3_64_intdigest(repr(told).encode(errors='replace')):016x}"

    def find(self, model: str) -> Rule | None:
        """The rule for a model as the client names it; empty: it names none."""
        return self.exact.get(model) or self.generic


def draw(key: str, rule: str) -> float:
    """
    A number from [0, 1) for a request, the same on every replica and at every try.

    Rules draw apart: who is among the first tenth of one rollout is not therefore among that of another.
    """
    return int(xxhash.xxh3_64_intdigest(f"{rule}\n{key}".encode(errors="replace"))) / 2**64


def header_target(headers: Mapping[str, str]) -> str | None:
    """The model that a header names; None: no header does, empty: one does that cannot be used."""
    for name in REWRITE_HEADERS:
        value = headers.get(name)
        if value is not None and (value := value.strip()):
            # what is no UTF-8 was replaced where headers are read
            usable = len(value) <= MAX_NAME and value.isprintable() and "\ufffd" not in value
            return value if usable else ""
    return None


# reading objects


def read_rewrite(entry: Any, place: str) -> Rewrite:
    """
    One ``InferenceModelRewrite`` out of JSON values. Unknown fields are refused where rules are, for a typing error
    there would be a rule that matches all.

    Raises:
        RewriteError: something in it is wrong.

    """
    entry = _object(entry, place)
    if entry.get("kind") != "InferenceModelRewrite":
        raise RewriteError(
            f"{place}: kind must be InferenceModelRewrite, not {str(entry.get('kind'))[:100]!r}"
        )
    version = entry.get("apiVersion")
    if version is not None and not str(version).startswith(_GROUPS):
        raise RewriteError(
            f"{place}: apiVersion must be inference.networking.x-k8s.io/v1alpha2, not {str(version)[:100]!r}"
        )
    metadata = _object(entry.get("metadata") or {}, f"{place}.metadata")
    namespace, name = _word(metadata, "namespace", place), _word(metadata, "name", place) or place
    full = f"{namespace}/{name}" if namespace else name
    spec = _object(entry.get("spec"), f"{place}.spec")
    pool = _object(spec.get("poolRef") or {}, f"{place}.spec.poolRef")
    rules = _list(spec, "rules", f"{place}.spec", most=MAX_RULES)
    return Rewrite(
        name=full,
        rules=tuple(
            _rule(rule, f"{full}[{index}]", f"{place}.spec.rules[{index}]")
            for index, rule in enumerate(rules)
        ),
        pool=_word(pool, "name", f"{place}.spec.poolRef"),
        namespace=namespace,
        created=_time(metadata.get("creationTimestamp"), f"{place}.metadata.creationTimestamp"),
    )


def _age(rewrite: Rewrite) -> tuple[bool, float, str]:
    """Objects of one second go by name, for every replica has to come to the same order."""
    if rewrite.created is None:
        return True, 0.0, ""
    return False, rewrite.created, rewrite.name


def _time(value: Any, place: str) -> float | None:
    """YAML makes a time of what JSON has as text."""
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise RewriteError(
            f"{place} must be a time as in 2026-01-31T12:00:00Z, not {str(value)[:100]!r}"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _rule(rule: Any, name: str, place: str) -> Rule:
    rule = _known(rule, place, "matches", "targets")
    matches = rule.get("matches")
    models = [
        _match(each, f"{place}.matches[{index}]")
        for index, each in enumerate([] if matches is None else _list(rule, "matches", place, most=MAX_LIST))
    ]
    targets = [
        _known(each, f"{place}.targets[{index}]", "modelRewrite", "weight")
        for index, each in enumerate(_list(rule, "targets", place, most=MAX_LIST))
    ]
    if not targets:
        raise RewriteError(f"{place}.targets must name at least one model")
    told = [each.get("weight") is not None for each in targets]
    if any(told) and not all(told):
        raise RewriteError(f"{place}.targets must have a weight each, or none at all")
    weighed = tuple(
        Target(_model(each.get("modelRewrite"), f"{place}.targets[{index}].modelRewrite"),
               _weight(each.get("weight"), f"{place}.targets[{index}].weight"))
        for index, each in enumerate(targets)
    )  # fmt: skip
    if not sum(target.weight for target in weighed):
        raise RewriteError(f"{place}.targets: at least one weight must be above 0")
    return Rule(name, frozenset(models), weighed)


def _match(match: Any, place: str) -> str:
    model = _known(_known(match, place, "model").get("model"), f"{place}.model", "type", "value")
    if model.get("type") not in {None, "Exact"}:
        raise RewriteError(f"{place}.model.type must be Exact, not {str(model['type'])[:100]!r}")
    return _model(model.get("value"), f"{place}.model.value")


def _model(value: Any, place: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise RewriteError(f"{place} must be the name of a model, of 1 to {MAX_NAME} printable characters")
    return value


def _weight(value: Any, place: str) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WEIGHT:
        raise RewriteError(f"{place} must be a whole number from 0 to {MAX_WEIGHT}")
    return value


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RewriteError(f"{place} must be an object, not {kind(value)}")
    found: Mapping[str, Any] = value
    return found


def _known(value: Any, place: str, *names: str) -> Mapping[str, Any]:
    known = _object(value, place)
    if unknown := sorted(str(key) for key in set(known) - set(names)):
        raise RewriteError(
            f"{place} has an unknown field {unknown[0][:100]!r}; allowed are {', '.join(names)}"
        )
    return known


def _list(value: Mapping[str, Any], name: str, place: str, *, most: int) -> Sequence[Any]:
    found = value.get(name)
    if not isinstance(found, list) or len(found) > most:
        raise RewriteError(f"{place}.{name} must be an array of at most {most} objects")
    return list(found)


def _word(value: Mapping[str, Any], name: str, place: str) -> str:
    word = value.get(name)
    if word is not None and (not isinstance(word, str) or len(word) > MAX_NAME):
        raise RewriteError(f"{place}: {name} must be a string of at most {MAX_NAME} characters")
    return word or ""
