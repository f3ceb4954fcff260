"""All parts, and how they are read from the environment."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    ValidationError,
)
from pydantic.fields import FieldInfo

from picker.settings.admin import AdminSettings, LifeSettings, PeersSettings
from picker.settings.discovery import DiscoverySettings, WorkerSettings
from picker.settings.events import BridgeSettings, EventSettings
from picker.settings.part import PREFIX, Part, SettingsError
from picker.settings.plane import PlaneSettings
from picker.settings.price import PriceSettings
from picker.settings.requests import RequestSettings
from picker.settings.serving import PoolSettings, ServingSettings

PARTS: tuple[type[Part], ...] = (
    PoolSettings, ServingSettings, RequestSettings, PriceSettings, EventSettings, BridgeSettings, PlaneSettings,
    DiscoverySettings, WorkerSettings, AdminSettings, PeersSettings, LifeSettings,
)  # fmt: skip


class Settings(BaseModel):
    """Everything one replica is told, a part each."""

    model_config = ConfigDict(frozen=True)

    pool: PoolSettings
    serving: ServingSettings
    requests: RequestSettings
    price: PriceSettings
    events: EventSettings
    bridge: BridgeSettings
    plane: PlaneSettings
    discovery: DiscoverySettings
    workers: WorkerSettings
    admin: AdminSettings
    peers: PeersSettings
    life: LifeSettings

    @cached_property
    def sync(self) -> Literal["isolated", "eventual", "atomic"]:
        """The sync mode in force, with the default of the plane filled in."""
        if self.plane.sync:
            return self.plane.sync
        if self.plane.replica_sync is not None:
            return "eventual" if self.plane.replica_sync else "isolated"
        memory = self.plane.plane_url.get_secret_value().startswith("memory:")
        return "isolated" if memory else "eventual"


def names_of(part: type[Part], field: str, info: FieldInfo) -> tuple[str, ...]:
    """The environment names of a setting, ours first."""
    if isinstance(info.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in info.validation_alias.choices)
    return (str(part.model_config.get("env_prefix", "")) + field.upper(),)


def known_names() -> Iterator[str]:
    """Every ``PICKER_*`` name that means something."""
    for part in PARTS:
        for field, info in part.model_fields.items():
            yield from (name for name in names_of(part, field, info) if name.startswith(PREFIX))


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = list(known_names())
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`picker settings` lists the known names."
        yield f"{name}: no such setting; {hint}"


def _faults(part: type[Part], error: ValidationError, environment: Mapping[str, str]) -> Iterator[str]:
    by_alias = {
        name: names for field, info in part.model_fields.items() for names in [names_of(part, field, info)]
        for name in (field, *names)
    }  # fmt: skip
    for fault in error.errors(include_url=False, include_input=False):
        names = by_alias.get(str(fault["loc"][0]), (str(fault["loc"][0]),)) if fault["loc"] else ("settings",)
        name = next((name for name in names if name in environment), names[0])
        said = fault["msg"].removeprefix("Value error, ")
        yield f"{name}: {said[0].lower()}{said[1:]}"


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """
    Read every part from the environment; ``given`` overrides by field name, as flags do.

    Raises:
        SettingsError: with one line per fault: the variable, what is wrong with its value, what is allowed.

    """
    environment = os.environ if environment is None else environment
    lines = list(_unknown(environment))
    parts: dict[str, Part] = {}
    for name, part in zip(Settings.model_fields, PARTS, strict=True):
        mine = {key: value for key, value in given.items() if key in part.model_fields}
        try:
            parts[name] = part(**mine)
        except ValidationError as error:
            lines.extend(_faults(part, error, environment))
    if lines:
        raise SettingsError(lines)
    return Settings(**parts)  # type: ignore[arg-type]
