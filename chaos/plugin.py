"""The pytest side of the suite: options, the clusters that scenarios share, and the report at the end.

`picker chaos run` calls pytest with it; ``pytest -p chaos.plugin --pyargs chaos.scenarios`` does the same by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio

from chaos.quiet import is_quiet
from chaos.result import Result, ScenarioFailed
from chaos.run import Run
from chaos.scenario import SUITES, Scenario, scenario_of
from chaos.story import Story
from chaos.targets import Target, TargetError
from chaos.targets.kube.brief import Brief
from chaos.targets.local import OFFERS, Local, given_up, started
from chaos.topology import PLANES, PlaneName, Topology
from chaos.verdict import Verdict, worst

if TYPE_CHECKING:
    from chaos.targets.kube.target import Kube

START_SECONDS = 150.0
"""What starting a cluster may take on top of a scenario's budget."""
QUIET_SECONDS = 30.0
_STAGE = pytest.StashKey["Session"]()


class Session:
    """One run of the suite: its clusters, one at a time, and its results. A `chaos.run.Stage`."""

    def __init__(
        self,
        *,
        seed: int,
        suite: str,
        folder: Path,
        mutant: str = "",
        soak_seconds: float = 0.0,
        brief: Brief | None = None,
    ) -> None:
        self.seed = seed
        self.suite = suite
        self.folder = folder
        self.mutant = mutant
        self.soak_seconds = soak_seconds
        self.results: list[Result] = []
        self.brief = brief
        """The release that is met; None: pools are of the suite's own."""
        self.not_played: Mapping[str, str] = {}
        """Scenarios of the suite that the target cannot play, with the reason."""
        self.target: Mapping[str, Any] = {"kind": "local"}
        self.begun = time.time()
        self._met: Kube | None = None
        self._local: Local | None = None
        self._twins: dict[str, Story] = {}
        self._clusters = 0

    @property
    def where(self) -> Sequence[str]:
        """The options by which the same target is named again."""
        return self.brief.options.words() if self.brief is not None else []

    async def cluster(self, topology: Topology) -> Target:
        """A whole and quiet cluster: the one that runs, if its topology is the same, or a new one.

        Raises TargetError for a release that cannot be met, or that somebody else sends requests to.
        """
        if self.brief is not None:
            return await self._release(self.brief)
        if self._local is not None and self._local.topology == topology and await self._usable(self._local):
            return self._local
        await self.discard()
        self._local = await started(lambda: self._new(topology))
        return self._local

    async def _release(self, brief: Brief) -> Kube:
        if self._met is None:
            from chaos.targets.kube.target import Kube

            met = Kube(brief.options, folder=self.folder)
            await met.start()
            self._met = met
        else:
            await self._met.make_whole()
        self.target = self._met.told()
        if not await self._quiet(self._met):
            raise TargetError(
                f"{self._met.release.place} is not quiet for {QUIET_SECONDS:g} s: something is carried or booked, or a"
                " replica does not stand well to its plane; nobody else may send requests while it is judged"
            )
        return self._met

    def _new(self, topology: Topology) -> Local:
        self._clusters += 1
        folder = self.folder / "clusters" / f"{self._clusters:02d}-{topology.plane}-{topology.key}"
        return Local(topology, folder=folder, mutation=self._mutation())

    def _mutation(self) -> dict[str, str]:
        if not self.mutant:
            return {}
        from chaos.mutants import environment

        return dict(environment(self.mutant, self.folder))

    async def _usable(self, local: Local) -> bool:
        try:
            await local.make_whole()
        except Exception as error:  # noqa: BLE001 - whatever is broken, a new cluster is not
            given_up(local, f"it cannot be made whole: {type(error).__name__}: {error}")
            return False
        if await self._quiet(local):
            return True
        given_up(local, f"it is not quiet after {QUIET_SECONDS:g} s")
        return False

    async def _quiet(self, target: Target) -> bool:
        deadline = time.monotonic() + QUIET_SECONDS
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < deadline:
                if await is_quiet(target, http):
                    return True
                await asyncio.sleep(0.1)
        return False

    async def discard(self) -> None:
        """End the cluster; leave the release."""
        local, self._local = self._local, None
        met, self._met = self._met, None
        for target in (local, met):
            if target is not None:
                await target.stop()

    def twin(self, key: str) -> Story | None:
        """A comparison run that was made already."""
        return self._twins.get(key)

    def keep_twin(self, key: str, story: Story) -> None:
        """Keep one."""
        self._twins[key] = story

    def done(self, result: Result) -> None:
        """A scenario is over."""
        self.results.append(result)

    @property
    def verdict(self) -> Verdict:
        """The worst of all; unknown where nothing ran."""
        return worst(result.verdict for result in self.results)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("chaos", "chaos suite")
    group.addoption("--chaos-suite", default="smoke", choices=SUITES, help="which scenarios run")
    group.addoption("--chaos-seed", type=int, default=1, help="arrivals and choices follow from it")
    group.addoption("--chaos-plane", action="append", default=[], choices=PLANES, help="default: both")
    group.addoption("--chaos-report", default="", help="folder for the report, histories and logs")
    group.addoption("--chaos-soak-seconds", type=float, default=0.0, help="how long each soak scenario runs")
    group.addoption(
        "--chaos-release", default="", help="play on this release in Kubernetes (a brief as JSON)"
    )
    group.addoption("--chaos-mutant", default="", help="break the replicas in this way (self-test)")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a session."""
    report = config.getoption("--chaos-report")
    folder = Path(report) if report else Path(tempfile.mkdtemp(prefix="picker-chaos-"))
    config.stash[_STAGE] = Session(
        seed=config.getoption("--chaos-seed"),
        suite=config.getoption("--chaos-suite"),
        folder=folder.absolute(),
        mutant=config.getoption("--chaos-mutant"),
        soak_seconds=config.getoption("--chaos-soak-seconds"),
        brief=Brief.from_json(told) if (told := config.getoption("--chaos-release")) else None,
    )


def session_of(config: pytest.Config) -> Session:
    """The session of a pytest run."""
    return config.stash[_STAGE]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each plane."""
    spec = scenario_of(metafunc.function)
    if spec is not None and "run" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--chaos-plane") or PLANES
        planes = [plane for plane in wanted if plane in spec.planes]
        metafunc.parametrize("plane", planes, scope="function")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the suite does not contain; play those that can share a cluster one after the other.

    What ``-k`` has left out is no longer among the items, and so is not told of as not played.
    """
    suite, session = config.getoption("--chaos-suite"), session_of(config)
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        spec = scenario_of(getattr(item, "function", None))
        if spec is None:
            kept.append(item)
            continue
        wanted = suite in spec.suites and plane_of(item) in PLANES
        if wanted and (why := lacking(spec, session.brief)):
            wanted = False
            session.not_played = {**session.not_played, spec.name: why}
        (kept if wanted else left).append(item)
        runs = 1 + len(spec.twins)
        seconds = spec.budget + config.getoption("--chaos-soak-seconds") + START_SECONDS
        seconds += session.brief.slack_seconds if session.brief is not None else 0.0
        item.add_marker(pytest.mark.timeout(runs * seconds))
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = sorted(kept, key=_order)


def lacking(spec: Scenario, brief: Brief | None) -> str:
    """Why a scenario cannot be played on the target; empty: it can."""
    return brief.lacking(spec.needs) if brief is not None else ", ".join(sorted({*spec.needs} - OFFERS))


def _order(item: pytest.Item) -> tuple[str, str]:
    spec = scenario_of(getattr(item, "function", None))
    if spec is None:
        return "", item.nodeid
    plane = plane_of(item)
    return plane, f"{spec.topology.on(plane).key} {item.nodeid}"


def plane_of(item: pytest.Item) -> PlaneName:
    """The plane that a scenario is played on; no plane's name where the chosen ones are none of its own."""
    plane: PlaneName = getattr(item, "callspec").params["plane"]  # noqa: B009 - only parametrized items have one
    return plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    """The clusters of this session; the last one ends with it."""
    session = session_of(request.config)
    session.folder.mkdir(parents=True, exist_ok=True)
    # of the whole suite: properties of a single case are not in the schema that readers of JUnit's XML check
    record = request.getfixturevalue("record_testsuite_property")
    for name, value in (("suite", session.suite), ("seed", session.seed), ("mutant", session.mutant)):
        record(name, value)
    yield session
    await session.discard()


@pytest.fixture
def run(request: pytest.FixtureRequest, stage: Session, plane: PlaneName) -> Run:
    """What a scenario's function is given."""
    spec = scenario_of(request.function)
    assert isinstance(spec, Scenario), "the fixture `run` is for scenarios"
    topology = spec.topology.on(plane)
    return Run(spec, topology, stage)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a scenario that did not pass its findings are shown, not the lines of the suite that led to them."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ScenarioFailed):
        report.longrepr = str(call.excinfo.value)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report, also where scenarios failed."""
    stage = session_of(session.config)
    if stage.results or (stage.brief is not None and stage.not_played):
        from chaos.report import write

        write(stage)
    with contextlib.suppress(OSError):
        if stage.verdict is Verdict.PASS:
            shutil.rmtree(stage.folder / "clusters")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for each scenario, and where the report is."""
    stage = session_of(config)
    not_played = stage.not_played if stage.brief is not None else {}
    if not stage.results and not not_played:
        return
    terminalreporter.section("chaos")
    for line in _summary(stage.results):
        terminalreporter.write_line(line)
    for why in dict.fromkeys(not_played.values()):
        names = [name for name, each in not_played.items() if each == why]
        terminalreporter.write_line(f"not here: {why}: {', '.join(names)}")
    terminalreporter.write_line(
        f"verdict {stage.verdict}, seed {stage.seed}; report: {stage.folder / 'index.html'}"
    )


def _summary(results: Iterable[Result]) -> Iterable[str]:
    for result in results:
        yield f"{result.verdict:<8} {result.topology.plane:<6} {result.seconds:5.1f} s  {result.scenario.name}"
