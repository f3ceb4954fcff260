"""Our messages are the published ones where they overlap, and the committed modules are what the sources generate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from picker.serving.wire import accesslog_pb2, extproc_pb2, health_pb2

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / ".tools" / "xds-protos"
INSTALL = f"{sys.executable} -m pip install --target {PUBLISHED} --no-deps xds-protos==1.85.0"

# Prints every message and enum of the given modules. Runs beside us, not in us: the published package and the one that
# brings the gateway's binary write the same files, so they cannot live in one environment.
DESCRIBE = """
import importlib, json, sys
found = {}
def field(one):
    of = one.message_type or one.enum_type
    return [one.number, one.type, bool(one.is_repeated), of.full_name if of else "",
            one.containing_oneof.name if one.containing_oneof else ""]
def message(one):
    found[one.full_name] = {each.name: field(each) for each in one.fields}
    for each in one.nested_types:
        message(each)
    for each in one.enum_types:
        enum(each)
def enum(one):
    found[one.full_name] = {each.name: each.number for each in one.values}
for name in sys.argv[1:]:
    of = importlib.import_module(name).DESCRIPTOR
    for each in of.message_types_by_name.values():
        message(each)
    for each in of.enum_types_by_name.values():
        enum(each)
print(json.dumps(found))
"""

UPSTREAM = {
    extproc_pb2: [
        "envoy.service.ext_proc.v3.external_processor_pb2",
        "envoy.config.core.v3.base_pb2",
        "envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2",
        "envoy.type.v3.http_status_pb2",
    ],
    accesslog_pb2: [
        "envoy.service.accesslog.v3.als_pb2",
        "envoy.data.accesslog.v3.accesslog_pb2",
        "envoy.config.core.v3.address_pb2",
    ],
}
ENUM, INT32 = 14, 5
Described = dict[str, dict[str, list[object] | int]]


def described(path: Path, modules: list[str]) -> Described:
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, *modules],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: Described = json.loads(done.stdout)
    return found


def without_package(name: object, package: str) -> str:
    return str(name).removeprefix(package + ".")


@pytest.mark.parametrize("ours", [extproc_pb2, accesslog_pb2], ids=["ext_proc", "accesslog"])
def test_every_field_has_the_published_name_number_and_type(ours: ModuleType) -> None:
    assert PUBLISHED.is_dir(), f"The published messages are missing. Run: {INSTALL}"
    theirs = described(PUBLISHED, UPSTREAM[ours])
    mine = described(ROOT, [ours.__name__])
    package = ours.DESCRIPTOR.package
    assert mine
    for full_name, fields in mine.items():
        name = without_package(full_name, package)
        (upstream,) = [other for other in theirs if other == name or other.endswith("." + name)]
        for field, shape in fields.items():
            published = theirs[upstream][field]
            if isinstance(shape, int) or isinstance(published, int):
                assert shape == published, (full_name, field)
                continue
            number, kind, repeated, of, oneof = shape
            if kind == INT32 and published[1] == ENUM:  # one varint on the wire
                kind, of = ENUM, published[3]
            assert [number, kind, repeated, oneof] == [*published[:3], published[4]], (full_name, field)
            assert str(published[3]).endswith(without_package(of, package)), (full_name, field)


def test_health_messages_are_those_of_grpc_health_v1() -> None:
    request, response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    assert request(service="a").SerializeToString() == b"\x0a\x01a"
    assert response(status=response.NOT_SERVING).SerializeToString() == b"\x08\x02"
    assert dict(response.ServingStatus.items()) == {
        "UNKNOWN": 0,
        "SERVING": 1,
        "NOT_SERVING": 2,
        "SERVICE_UNKNOWN": 3,
    }


def test_our_packages_never_meet_the_published_ones() -> None:
    for module in (extproc_pb2, accesslog_pb2, health_pb2):
        assert module.DESCRIPTOR.package.startswith("picker.wire.")
        assert module.DESCRIPTOR.name.startswith("picker/serving/wire/")


def test_the_committed_modules_are_what_the_sources_generate() -> None:
    done = subprocess.run(
        [sys.executable, "protos/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
