"""A replica is replaced by one of an earlier build: the real one, named by `picker chaos run --previous PATH`.

Side by side with replicas of this build it shares the pool: a rolling upgrade and a rollback stand so for a while. What
the two must agree on is what each writes into the plane and tells its peers. Settings that the earlier build does not
know are left out for it, as its operator would have none of them, and named in the history.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life, seen
from chaos.injectors.process import END_SECONDS
from picker.sim.processes import ProcessError, Program, lives

VARIABLE, TOLD = "CHAOS_PREVIOUS", "CHAOS_PREVIOUS_TOLD"
"""The path, as the command was given it, and what the build there says of itself; not set: there is none at hand."""
PARTS = ("picker", "stateplane", "discovery")
ASK_SECONDS = 30.0
_UNKNOWN = re.compile(r"\b(PICKER_\w+): no such setting")
"""How a picker refuses a setting, and with it the start."""


class BuildError(Exception):
    """No build of the picker is there. Says what was looked for."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of the picker other than the one that plays."""

    path: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    told: str = ""
    """Which one it is, by `describe`; empty: it was not asked."""

    def describe(self) -> str:
        """Its own word on its version, and where it stands. Waits for it; raises BuildError where it does not run."""
        version = self._says(*self.argv, "--version")
        if "PYTHONPATH" not in self.environment:
            return f"{version} at {self.path}"
        # its packages are this suite's, so what they say of a version is of this build: the text tells them apart
        found = self._says(*self.argv[:2], "-c", "import picker; print(picker.__file__)")
        if not Path(found).is_relative_to(self.path):
            raise BuildError(f"{self.path}: {found} is loaded in its place")
        return f"{version} at {self.path}, source {_digest(self.path)}"

    def _says(self, *argv: str) -> str:
        try:
            told = subprocess.run(  # noqa: S603 - the user names the program, to have it run
                argv,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=ASK_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", "") or str(error)
            raise BuildError(f"{self.path}: no picker runs there: {words.strip()[-300:]}") from error
        return told.stdout.strip()


def _digest(tree: Path) -> str:
    """Of every Python and Lua file that a replica may load from there."""
    files = sorted(file for part in PARTS for kind in ("*.py", "*.lua") for file in (tree / part).rglob(kind))
    told = hashlib.sha256()
    for file in files:
        told.update(f"{file.relative_to(tree)}\0".encode() + file.read_bytes() + b"\0")
    return told.hexdigest()[:12]


def build_at(path: Path) -> Build:
    """The build at a path: an executable, a virtual environment, a checkout with one, or a bare source tree.

    A source tree runs by this interpreter and its packages. Raises BuildError.
    """
    path = path.absolute()
    if path.is_file() and os.access(path, os.X_OK):
        return Build(path, (str(path),))
    for place in ("picker", "bin/picker", ".venv/bin/picker"):
        found = path / place
        if found.is_file() and os.access(found, os.X_OK):
            return Build(path, (str(found),))
    if (path / "picker" / "__main__.py").is_file():
        # -P: else this suite's own tree, where it may have been started, would come first
        return Build(path, (sys.executable, "-P", "-m", "picker"), {"PYTHONPATH": str(path)})
    raise BuildError(
        f"{path}: neither an executable, nor a folder with picker, bin/picker or .venv/bin/picker, nor a source tree"
    )


def mix_in(path: Path) -> Build:
    """Have scenarios that ask for an earlier build find that one. Raises BuildError."""
    build = build_at(path)
    build = replace(build, told=build.describe())
    os.environ[VARIABLE], os.environ[TOLD] = str(build.path), build.told
    return build


def previous_build() -> Build | None:
    """The one that was named, if any. Raises BuildError."""
    path = os.environ.get(VARIABLE, "")
    return replace(build_at(Path(path)), told=os.environ.get(TOLD, "")) if path else None


@dataclass(frozen=True, slots=True)
class Previous:
    """SIGTERM, and a start as the earlier build, for as long as the block lasts."""

    target: str
    build: Build
    kind: str = field(default="previous", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"end {self.target} in good order and start the build at {self.build.path} in its place, then back"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once the earlier build is ready, left once this one is again."""
        programs: list[Program] = []

        async def act() -> Evidence:
            child = running.cluster.children[running.resolve(self.target)]
            programs.append(child.program)
            pids = await _replaced(running, self.target, _played_by(self.build, child.program))
            return {"build": self.build.told, **pids}

        async def heal() -> Evidence:
            return await _replaced(running, self.target, programs[0]) if programs else {}

        value = {"build": str(self.build.path)}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


def _played_by(build: Build, program: Program) -> Program:
    if program.argv[-1] != "serve":
        raise InjectionError(f"{program.name} is no replica: only those have earlier builds")
    mixed = {**program.environment, **build.environment}
    before = program.environment.get("PYTHONPATH", "")
    if before and "PYTHONPATH" in build.environment:
        mixed["PYTHONPATH"] = os.pathsep.join((build.environment["PYTHONPATH"], before))
    return replace(program, argv=(*build.argv, "serve"), environment=mixed)


async def _replaced(running: Running, target: str, program: Program) -> Evidence:
    name = running.resolve(target)
    child = running.cluster.children[name]
    before = child.pid
    if child.alive:
        await running.cluster.kill(name, signal.SIGTERM)
        await seen(lambda: not lives(before), what=f"the end of {target}", within=END_SECONDS)
    child.program = program
    try:
        await running.cluster.restart(name)
    except ProcessError as error:
        unknown = set(_UNKNOWN.findall(str(error))) & program.environment.keys()
        if not unknown:
            raise
        child.program = without(program, unknown)
        await running.cluster.restart(name)
        return {"pid_before": before, "pid": child.pid, "left_out": sorted(unknown)}
    return {"pid_before": before, "pid": child.pid}


def without(program: Program, settings: Iterable[str]) -> Program:
    """The same program, which is not told these."""
    left_out = set(settings)
    kept = {name: value for name, value in program.environment.items() if name not in left_out}
    return replace(program, environment=kept)


def previous(target: str, build: Build) -> Previous:
    """Replace a replica by one of an earlier build, for a while."""
    return Previous(target, build)
