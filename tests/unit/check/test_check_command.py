"""The command: what it is told, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from picker.cli.check import command


def said(*arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments))


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PICKER_PEERS", "PICKER_PEER_SERVICE", "PICKER_PLANE_URL", "PICKER_TLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("picker.logs.configure", lambda _level, _form: None)
    with capture_logs():
        yield


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--replicas", "0"), "--replicas"),
        (("--timeout", "0"), "--timeout"),
        (("--secret-file", "/nowhere/secret"), "does not exist"),
        (("--tls-key", __file__), "go together"),
        (("--ports-file", __file__), "--ports-file"),
        (("--peer-service", "no such name"), "no such name"),
        (("--unknown",), "--unknown"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], words: str) -> None:
    result = said(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert "Traceback" not in result.output


def test_wrong_settings_end_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_GRPC_PROT", "1")
    result = said()
    assert result.exit_code == 2
    assert "PICKER_GRPC_PORT" in result.output


def ports_file(folder: Path) -> Path:
    file = folder / "ports.json"
    closed = {"name": "picker-0", "extproc": "127.0.0.1:9", "health": "127.0.0.1:9", "peers": "127.0.0.1:9"}
    file.write_text(json.dumps({"replicas": [closed]}))
    return file


def test_nobody_there_fails_with_1_and_every_row_says_what_to_do(tmp_path: Path) -> None:
    result = said("--ports-file", str(ports_file(tmp_path)), "--timeout", "2", "--json")
    assert result.exit_code == 1, result.output
    document = json.loads(result.output)
    failed = [row for row in document["checks"] if row["state"] == "failed"]
    assert {row["check"] for row in failed} == {"health", "status", "pick"}
    assert all(row["remedy"] for row in failed)
    assert document["ok"] is False


def test_what_cannot_be_read_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICKER_PEERS_SECRET_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("PICKER_TLS", "self-signed")
    monkeypatch.setenv("PICKER_TLS_CLIENT_CA_FILE", str(tmp_path / "ca.crt"))
    result = said("--ports-file", str(ports_file(tmp_path)), "--timeout", "2", "--json")
    rows = {row["check"]: row for row in json.loads(result.output)["checks"]}
    assert (rows["status"]["state"], rows["pick"]["state"]) == ("skipped", "skipped")
    assert "No such file" in rows["status"]["reason"]
    assert "gateway's certificate" in rows["pick"]["reason"]
    assert rows["members"]["state"] == "skipped"


def test_whatever_is_wrong_the_document_is_all_that_is_printed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("\n\n")
    arguments = ("--json", "--ports-file", ports_file(tmp_path), "--secret-file", secret, "--timeout", "1")
    program = "import sys; from picker.cli.check import command; command(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    document = json.loads(ended.stdout)
    (row,) = (row for row in document["checks"] if row["check"] == "status")
    assert row["state"] == "skipped"
    assert "holds no secret" in row["reason"]
