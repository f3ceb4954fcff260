"""Values to begin with, and how tests put more of them on top."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

BASE: dict[str, Any] = {"pool": {"selector": {"app": "llama-8b"}}}
REDIS = BASE | {"plane": {"url": "redis://valkey.data.svc:6379"}}


def with_values(base: Mapping[str, Any], **paths: Any) -> dict[str, Any]:
    """The values with more of them, by dotted paths in which `__` stands for the dot."""
    values: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in paths.items():
        *above, last = path.split("__")
        at = values
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
    return values


def in_pod(name: str, value: str) -> dict[str, Any]:
    """A variable of the picker's container by the operator's own pod template."""
    containers = [{"name": "picker", "env": [{"name": name, "value": value}]}]
    return {"podTemplate": {"spec": {"containers": containers}}}
