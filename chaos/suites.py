"""All scenarios there are, by suite and by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import chaos.scenarios
from chaos.scenario import Scenario, Suite, scenario_of


def modules() -> Iterator[ModuleType]:
    """The modules of scenarios, by name."""
    for found in sorted(pkgutil.iter_modules(chaos.scenarios.__path__), key=lambda each: each.name):
        yield import_module(f"{chaos.scenarios.__name__}.{found.name}")


def scenarios_of(module: ModuleType) -> list[Scenario]:
    """The scenarios that a module holds itself, in the order of its text."""
    specs = (scenario_of(thing) for thing in vars(module).values())
    return [spec for spec in specs if spec is not None and spec.module == module.__name__]


def scenarios(suite: Suite | None = None) -> list[Scenario]:
    """Every scenario, or those of one suite, in the order of their text."""
    found = [spec for module in modules() for spec in scenarios_of(module)]
    return [spec for spec in found if suite is None or suite in spec.suites]


def scenario_named(name: str) -> Scenario:
    """The scenario of that name. KeyError names those that are nearly called so."""
    known = {spec.name: spec for spec in scenarios()}
    if name not in known:
        raise KeyError(f"no scenario {name!r}; there are: {', '.join(known)}")
    return known[name]
