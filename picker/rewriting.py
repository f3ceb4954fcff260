"""
Requests under another model: which one the rules give, and the body and the ask that say so.

What cannot be rewritten goes on as the client wrote it, is routed by what the engine will then see, and is counted.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from picker.requests.ask import Api, Ask
from picker.requests.openai import Adapters
from picker.requests.paths import Family, Shown, family_of, path_of
from picker.requests.renaming import find, renamed
from picker.requests.rewriting import Rules, draw, header_target
from picker.serving.seam import HttpRequest

OTHER = "other"

BY_HEADER = "header"
"""Stands for the rule where a header names the model."""

_UNFILLED = frozenset({Api.OTHER, Api.GENERATE, Api.AUDIO})
"""APIs whose requests need name no model."""


class Hindrance(StrEnum):
    """Why a request goes on as it is, although a rule or a header may be meant for it."""

    PATH = "path"  # an API whose bodies name no model, or an unknown one
    HIDDEN = "hidden"  # the gateway does not show the body
    CUT = "cut"  # the gateway shows a part of it
    ENCODED = "encoded"  # a content encoding that is not read
    FORM = "form"  # multipart/form-data, which is not rewritten
    FIXED = "fixed"  # the gateway takes no other body
    NOT_JSON = "not_json"  # no JSON object, or one too large to look through
    BAD_HEADER = "bad_header"  # the header's value is no model's name: the rules were asked


@dataclass(slots=True)
class Counts:
    """What became of the requests for which there are rules or a header, since the start."""

    renamed: int = 0
    """Requests that went on under another model."""
    filled: int = 0
    """Of those, such as named none."""
    by_header: int = 0
    """Of those, such as a header named the model for."""
    same: int = 0
    """Requests that a rule or a header left under the model that they name."""
    unrestored: int = 0
    """Of those, such as whose answers the gateway does not show: clients read the engine's name there."""
    left: dict[str, int] = field(default_factory=lambda: {str(reason): 0 for reason in Hindrance})
    """Requests that went on as they were, by reason."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What rules or a header did to a request."""

    client: str
    """The model that the client named; empty: none."""
    target: str
    rule: str
    """Name of the rule, or `BY_HEADER`."""
    exact: bool
    """Whether the rule names the client's model."""
    ask: Ask
    """As the engine will see it."""
    body: bytes | None = None
    """The body that says so; None: the client's."""
    left: Hindrance | None = None
    """Why it was not done."""

    @property
    def restored(self) -> str:
        """The name to be put back into the answer; empty: none."""
        return "" if self.body is None else self.client

    @property
    def label(self) -> str:
        """The client's name for the model, as far as an operator or an engine knows it: any client may make one up."""
        return self.client if self.exact or self.body is None or not self.client else OTHER

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        return {
            "client_model": self.client or None,
            "target": self.target,
            "rule": self.rule,
            "not_rewritten_because": None if self.left is None else str(self.left),
        }


class Source(Protocol):
    """Where the rules are; they may change at any time."""

    @property
    def rules(self) -> Rules:
        """The rules as of now."""
        ...


@dataclass(slots=True)
class NoRules:
    """A source for where there are none."""

    rules: Rules = field(default_factory=Rules)


class Rewriting:
    """Gives requests the models that the rules want."""

    def __init__(
        self, source: Source, *, rng: random.Random, loras: Container[str] = (), base_model: str = ""
    ) -> None:
        self.counts = Counts()
        self._source = source
        self._rng = rng
        self._adapters = Adapters(loras, base_model)

    def apply(self, request: HttpRequest, ask: Ask, key: str) -> Rewritten | None:
        """
        What becomes of a request; None: nothing, no rule is for it.

        ``key`` is the request's key, made from the body as the client sent it, so that a retry goes to the same model;
        empty: chance decides.
        """
        rules, named = self._source.rules, header_target(request.headers)
        if named is None and not rules.rules:
            return None
        if named == "":
            self.counts.left[Hindrance.BAD_HEADER] += 1
        family = family_of(path_of(request.headers))
        hindrance = _hindrance(request, family)
        if named:
            return self._done(request, ask, named, BY_HEADER, hindrance)
        if hindrance in _BLIND:
            if hindrance is not Hindrance.PATH:
                self.counts.left[hindrance] += 1
            return None
        rule = rules.find(ask.model) if ask.model or ask.api not in _UNFILLED else None
        if rule is None:
            return None
        target = rule.target(draw(key, rule.name) if key else self._rng.random())
        return self._done(request, ask, target, rule.name, hindrance, exact=ask.model in rule.models)

    def _done(
        self,
        request: HttpRequest,
        ask: Ask,
        target: str,
        rule: str,
        hindrance: Hindrance | None,
        *,
        exact: bool = False,
    ) -> Rewritten:
        done = Rewritten(ask.model, target, rule, exact, ask)
        if hindrance is None and target == ask.model:
            self.counts.same += 1
            return done
        body = _renamed(request.body, target) if hindrance is None and request.body is not None else None
        if body is None:
            hindrance = hindrance or Hindrance.NOT_JSON
            self.counts.left[hindrance] += 1
            return replace(done, left=hindrance)
        self.counts.renamed += 1
        self.counts.filled += not ask.model
        self.counts.by_header += rule == BY_HEADER
        return replace(done, ask=self._under(ask, target), body=body)

    def _under(self, ask: Ask, target: str) -> Ask:
        """The ask under another model. An adapter that a field of its own names stays."""
        if ask.lora != self._adapters.of(ask.model)["lora"]:
            return replace(ask, model=target)
        return replace(ask, model=target, **self._adapters.of(target))


_BLIND = frozenset({Hindrance.PATH, Hindrance.HIDDEN, Hindrance.CUT, Hindrance.ENCODED})
"""Hindrances under which the client's model is not known, so that no rule can be found."""


def _hindrance(request: HttpRequest, family: Family | None) -> Hindrance | None:
    headers = request.headers
    if family is None or family.shown is not Shown.MODEL or headers.get(":method", "POST") != "POST":
        return Hindrance.PATH
    if not request.body:
        return Hindrance.HIDDEN
    if not request.complete:
        return Hindrance.CUT
    if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        return Hindrance.ENCODED
    if headers.get("content-type", "").lower().startswith("multipart/"):
        return Hindrance.FORM
    return None if request.rewritable else Hindrance.FIXED


def _renamed(body: bytes, target: str) -> bytes | None:
    places = find(body)
    return None if places is None else renamed(body, places, target)
