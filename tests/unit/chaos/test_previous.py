"""An earlier build to mix in: found at a path, asked who it is, told in the report."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from chaos.command import command
from chaos.injectors import Fault, Running
from chaos.injectors.previous import (
    TOLD,
    VARIABLE,
    Build,
    BuildError,
    build_at,
    mix_in,
    previous,
    previous_build,
)
from chaos.result import versions
from picker.sim.processes import ProcessError, Program


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, TOLD):
        monkeypatch.setenv(name, "")


def _executable(file: Path, says: str, status: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {says}\nexit {status}\n")
    file.chmod(0o755)
    return file


def _tree(folder: Path, version: str = "0.9") -> Path:
    """A source tree of a picker that only says its version."""
    (folder / "picker").mkdir(parents=True)
    (folder / "picker" / "__init__.py").touch()
    (folder / "picker" / "__main__.py").write_text(f"print('picker, version {version}')\n")
    return folder


@pytest.mark.parametrize("place", ["picker", "bin/picker", ".venv/bin/picker"])
def test_a_folder_with_an_executable_is_that_build(tmp_path: Path, place: str) -> None:
    file = _executable(tmp_path / place, "picker, version 0.8")
    build = build_at(tmp_path)
    assert build.argv == (str(file),)
    assert build.describe() == f"picker, version 0.8 at {tmp_path}"
    assert build_at(file).argv == (str(file),)


def test_a_source_tree_runs_by_this_interpreter_and_is_told_by_its_text(tmp_path: Path) -> None:
    old, new = build_at(_tree(tmp_path / "old")), build_at(_tree(tmp_path / "new", "1.0"))
    assert old.argv[0] == sys.executable
    assert old.describe().startswith(f"picker, version 0.9 at {tmp_path / 'old'}, source ")
    assert old.describe().rpartition(" ")[2] != new.describe().rpartition(" ")[2]


def test_what_is_no_build_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"\.venv/bin/picker, nor a source tree"):
        build_at(tmp_path)
    broken = build_at(_executable(tmp_path / "picker", "boom", status=3))
    with pytest.raises(BuildError, match="no picker runs there"):
        broken.describe()


def test_a_build_that_is_mixed_in_stands_among_the_versions_of_the_report(tmp_path: Path) -> None:
    assert previous_build() is None
    assert "mixed in" not in versions()
    told = mix_in(_tree(tmp_path)).told
    found = previous_build()
    assert found is not None
    assert found.told == told == versions()["mixed in"]
    assert os.environ[VARIABLE] == str(tmp_path)


def test_the_plan_of_a_run_with_an_earlier_build_names_it(tmp_path: Path) -> None:
    words = ["run", "--suite", "release", "--plane", "redis", "-k", "upgraded_one", "--dry-run"]
    plain = CliRunner().invoke(command, words)
    assert plain.exit_code == 0
    assert str(tmp_path) not in plain.output
    mixed = CliRunner().invoke(command, [*words, "--previous", str(_tree(tmp_path))])
    assert mixed.exit_code == 0
    assert f"mixed in where versions stand side by side: picker, version 0.9 at {tmp_path}" in mixed.output
    assert f"end picker-0 in good order and start the build at {tmp_path} in its place" in mixed.output


def test_a_path_without_a_build_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command, ["run", "--previous", str(tmp_path), "--report", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert "--previous" in result.output
    assert not (tmp_path / "out").exists()


async def test_settings_that_an_earlier_build_refuses_are_left_out_for_it_and_named() -> None:
    running = Pool(knows={"PICKER_PEERS"})
    environment = {"PICKER_PEERS": "a", "PICKER_PEERS_PORT": "1", "PATH": "/bin"}
    running.child.program = replace(running.child.program, environment=environment)
    fault = previous("picker-0", Build(Path("/old"), ("/old/picker",), told="0.8"))
    async with fault.into(cast("Running", running)):
        assert running.child.program.argv == ("/old/picker", "serve")
        assert dict(running.child.program.environment) == {"PICKER_PEERS": "a", "PATH": "/bin"}
        seen = next(told for told in running.told if told.phase == "seen")
        assert seen.value["left_out"] == ["PICKER_PEERS_PORT"]
        assert seen.value["build"] == "0.8"
    assert running.child.program.argv == ("picker", "serve")
    assert running.child.program.environment == environment


class Pool:
    """A pool of one replica; a build under /old knows some settings only."""

    def __init__(self, knows: set[str]) -> None:
        self.knows = knows
        self.told: list[Fault] = []
        self.child = SimpleNamespace(
            alive=False, pid=1 << 22, program=Program("picker-0", ("picker", "serve"), _ready, {})
        )
        self.cluster = SimpleNamespace(children={"picker-0": self.child}, restart=self.restart)

    async def restart(self, name: str) -> None:
        program = self.child.program
        wrong = {one for one in program.environment if one.startswith("PICKER_")} - self.knows
        if program.argv[0].startswith("/old") and wrong:
            lines = "\n".join(f"    {one}: no such setting; did you mean PICKER_PEERS?" for one in wrong)
            raise ProcessError(f"{name} ended with exit code 2; its log ends with:\n{lines}")

    def resolve(self, target: str) -> str:
        return target

    def fault_id(self, kind: str, target: str) -> str:
        return f"{kind} {target}"

    def tell(self, fault: Fault) -> None:
        self.told.append(fault)


async def _ready() -> bool:
    return True
