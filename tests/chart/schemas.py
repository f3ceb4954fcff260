"""Judges rendered objects: Kubernetes' own by its schemas, others by their definitions; unknown fields are faults."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml

from tests.tools.helm import CRDS, PYTHON

WRITTEN: Final = Path(__file__).parent / "definitions"
"""Definitions of kinds whose project's module cannot be fetched: the part that is rendered, written by hand."""

OWN_GROUPS: Final = {
    "", "apps", "autoscaling", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
}  # fmt: skip


@cache
def _tools() -> tuple[Any, Any]:
    # appended, so that nothing of the environment is replaced
    if str(PYTHON) not in sys.path:
        sys.path.append(str(PYTHON))
    return import_module("jsonschema"), import_module("kubernetes_validate")


def group_of(each: Mapping[str, Any]) -> str:
    """The API group; empty for the core."""
    group, slash, _ = each["apiVersion"].partition("/")
    return group if slash else ""


def _closed(schema: Any) -> Any:
    """The schema without room for fields that the API server would drop in silence."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = {key: _closed(value) for key, value in schema.items()}
    free = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not free:
        closed["additionalProperties"] = False
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        closed["type"] = [schema["type"], "null"]
    return closed


@cache
def definitions() -> Mapping[tuple[str, str, str], Mapping[str, Any]]:
    """Schemas by group, version and kind."""
    found = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((*CRDS.glob("*.yaml"), *WRITTEN.glob("*.yaml"))):
        for each in yaml.load_all(path.read_text(), Loader=loader):
            if not each or each["kind"] != "CustomResourceDefinition":
                continue
            spec = each["spec"]
            for version in spec["versions"]:
                schema = _closed(version["schema"]["openAPIV3Schema"])
                for word in ("apiVersion", "kind", "metadata"):
                    schema["properties"][word] = {}
                found[spec["group"], version["name"], spec["names"]["kind"]] = schema
    return found


def faults(each: Mapping[str, Any], kubernetes: str) -> Iterator[str]:
    """What is wrong with an object, a sentence each."""
    jsonschema, validate = _tools()
    name = f"{each['kind']} {each['metadata']['name']}"
    if group_of(each) in OWN_GROUPS:
        try:
            validate.validate(each, kubernetes, strict=True)
        except validate.ValidationError as error:
            yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"
        return
    key = (group_of(each), each["apiVersion"].rpartition("/")[2], each["kind"])
    schema = definitions().get(key)
    if schema is None:
        yield f"{name}: no definition of {key}"
        return
    for fault in jsonschema.Draft202012Validator(schema).iter_errors(each):
        yield f"{name}: {'.'.join(map(str, fault.path))}: {fault.message[:300]}"
