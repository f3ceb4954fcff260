"""Settings: the environment is read as documented, and every fault is told in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from picker import settings
from picker.settings.table import markdown, rows, short_markdown


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PICKER_", "DYN_")) or name in {
            "NAMESPACE",
            "POD_NAMESPACE",
            "POD_NAME",
            "POD_IP",
        }:
            monkeypatch.delenv(name)


def test_a_misspelt_name_is_told_with_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_BOOKING_TLT", "3")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    assert caught.value.lines == [
        "PICKER_BOOKING_TLT: no such setting; did you mean PICKER_BOOKING_TTL_SECONDS?"
    ]


def test_every_fault_has_a_line_of_its_own_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_SCRAPE_SECONDS", "soon")
    monkeypatch.setenv("PICKER_SYNC", "sometimes")
    monkeypatch.setenv("PICKER_GRPC_PORT", "70000")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    named = {line.partition(":")[0] for line in caught.value.lines}
    assert named == {"PICKER_SCRAPE_SECONDS", "PICKER_SYNC", "PICKER_GRPC_PORT"}


def test_a_fault_in_an_aliased_name_names_the_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS", "never")
    with pytest.raises(settings.SettingsError, match="DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"):
        settings.load()


def test_a_secret_is_not_shown_when_its_neighbour_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_PLANE_URL", "redis://:hunter2@plane:6379")
    monkeypatch.setenv("PICKER_HEARTBEAT_SECONDS", "x")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    assert "hunter2" not in str(caught.value)


def test_the_fields_names_are_accepted_and_ours_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_EPP_PEER_SERVICE", "theirs")
    assert settings.load().discovery.peer_service == "theirs"
    monkeypatch.setenv("PICKER_PEER_SERVICE", "ours")
    assert settings.load().discovery.peer_service == "ours"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "isolated"),
        ({"PICKER_PLANE_URL": "redis://x:1"}, "eventual"),
        ({"PICKER_PLANE_URL": "redis://x:1", "DYN_ROUTER_REPLICA_SYNC": "false"}, "isolated"),
        ({"DYN_ROUTER_REPLICA_SYNC": "true"}, "eventual"),
        ({"DYN_ROUTER_REPLICA_SYNC": "false", "PICKER_SYNC": "atomic"}, "atomic"),
    ],
)
def test_the_sync_mode_follows_the_plane_unless_it_is_said(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert settings.load().sync == expected


def test_words_are_split_at_commas_and_an_empty_value_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_PEERS", "a:1, b:2,")
    monkeypatch.setenv("PICKER_SCRAPE_SECONDS", "")
    loaded = settings.load()
    assert loaded.discovery.peers == ("a:1", "b:2")
    assert loaded.workers.scrape_seconds == 0.5


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKER_GRPC_PORT", "1")
    assert settings.load(grpc_port=2).serving.grpc_port == 2


def test_settings_are_frozen() -> None:
    loaded = settings.load()
    with pytest.raises(Exception, match="frozen"):
        loaded.serving.grpc_port = 1


def test_every_setting_is_documented_in_the_table() -> None:
    table = markdown()
    for row in rows():
        assert row.text, f"{row.name} has no text"
        assert f"`{row.name}`" in table


def test_the_short_table_has_every_setting_with_one_sentence() -> None:
    lines = {line.split("`")[1]: line for line in short_markdown().splitlines()[2:]}
    assert set(lines) == {row.name for row in rows()}
    assert all(line.rstrip(" |").endswith((".", "`")) for line in lines.values()), "a sentence was cut"


def test_the_names_of_all_parts_are_distinct() -> None:
    names = list(settings.known_names())
    assert len(names) == len(set(names))


def test_the_command_stops_with_a_line_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "picker", "serve"],
        env={"PICKER_BOOKING_TLT": "3", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "PICKER_BOOKING_TLT" in done.stderr
    assert "PICKER_BOOKING_TTL_SECONDS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PICKER_TEMPERATURE", "inf"),
        ("PICKER_BODY_TIMEOUT_SECONDS", "nan"),
        ("PICKER_REPLICA_NAME", "x" * 600),
        ("PICKER_HEARTBEAT_SECONDS", "10"),
        ("PICKER_DRAIN_MAX_SECONDS", "3"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    assert [line.partition(":")[0] for line in caught.value.lines] == [name]
