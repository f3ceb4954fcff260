"""What an InferencePool says: which pods, which ports. Pure; ``v1`` and the older ``v1alpha2``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_PORTS = 8
MAX_LABELS = 64


class ObjectError(ValueError):
    """An object that cannot be used; the message names the field, what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The part of an InferencePool that names its workers."""

    selector: Mapping[str, str]
    """Labels that its pods carry."""
    ports: tuple[int, ...]
    """Each serves one data-parallel rank of every pod: its place here is the rank."""
    protocol: str = "http"
    """``appProtocol``: ``http`` or ``kubernetes.io/h2c``."""

    @property
    def query(self) -> str:
        """The selector as the API takes it."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.selector.items()))


def read_pool(entry: Mapping[str, Any]) -> Pool:
    """
    Read an InferencePool; where it has both, ``targetPorts`` goes before the older ``targetPortNumber``.

    Raises:
        ObjectError: it selects no pods, or its ports make no sense.

    """
    spec = mapping(entry.get("spec"), "spec")
    protocol = spec.get("appProtocol") or "http"
    return Pool(_selector(spec), _ports(spec), protocol if isinstance(protocol, str) else "http")


def mapping(value: Any, place: str) -> Mapping[str, Any]:
    """
    The value as an object.

    Raises:
        ObjectError: it is none.

    """
    if not isinstance(value, dict):
        raise ObjectError(f"{place} must be an object")
    return value


def texts(value: Any) -> Mapping[str, str]:
    """Those of the entries that are texts, in the order of their names, so many as are kept."""
    if not isinstance(value, dict):
        return {}
    pairs = sorted((name, text) for name, text in value.items() if isinstance(text, str))
    return dict(pairs[:MAX_LABELS])


def number(value: Any) -> int | None:
    """A whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _selector(spec: Mapping[str, Any]) -> Mapping[str, str]:
    selector = mapping(spec.get("selector"), "spec.selector")
    if isinstance(selector.get("matchLabels"), dict):
        selector = selector["matchLabels"]
    if not selector or len(selector) > MAX_LABELS:
        raise ObjectError(f"spec.selector must name 1 to {MAX_LABELS} labels: none would select every pod")
    for name, value in selector.items():
        if not isinstance(value, str) or set(f"{name}{value}") & set(",=!() \t\r\n"):
            raise ObjectError(f"spec.selector: {str(name)[:100]!r} is no label with a text as its value")
    return dict(selector)


def _ports(spec: Mapping[str, Any]) -> tuple[int, ...]:
    listed = spec.get("targetPorts")
    if listed is None:
        listed = [{"number": spec.get("targetPortNumber")}]
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_PORTS:
        raise ObjectError(f"spec.targetPorts must hold 1 to {MAX_PORTS} ports")
    ports = [number(each.get("number")) if isinstance(each, dict) else None for each in listed]
    found = tuple(port for port in ports if port is not None and 1 <= port <= 65535)
    if len(found) != len(ports) or len(set(found)) != len(found):
        raise ObjectError(
            f"spec.targetPorts must be numbers from 1 to 65535, each once, not {str(ports)[:200]}"
        )
    return found
