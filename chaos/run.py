"""One scenario being played: load and looks go on while it says what goes wrong; then its history is judged."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from chaos.audit import AuditError
from chaos.checkers import AUDIT, Check, judge
from chaos.checkers.running import KeptRunning
from chaos.checks import ALWAYS, UNTOLD, answered, whole
from chaos.history import SCHEMA, HistoryError, Writer, read
from chaos.injectors import Fault, Injection
from chaos.load import OpenLoop, Sender
from chaos.observe import LOOK_SECONDS, Observer
from chaos.pace import KeptPace, note_stalls
from chaos.quiet import is_quiet, own_bookings
from chaos.reading import read_story
from chaos.result import Result, ScenarioFailed, Stage, versions
from chaos.scenario import Scenario, Twin
from chaos.story import Story
from chaos.streams import Streams
from chaos.targets import Target
from chaos.topology import Topology
from chaos.verdict import Finding, Verdict, unknown, worst

DRAIN_SECONDS = 45.0
"""Longest wait for the last answers."""
QUIET_SECONDS = 20.0
BUSY_SECONDS = 10.0
"""Longest wait for a replica to have something under way."""
SOAK_LOOKS = 1200
PLAYED = "the scenario is played to its end"
_LINE_BYTES = 1 << 20


@dataclass(slots=True)
class Run:
    """What a scenario's function is given."""

    scenario: Scenario
    topology: Topology
    stage: Stage
    faults: bool = True
    """False: injections do nothing, for a run to compare with."""
    patience: float = QUIET_SECONDS
    """Longest wait for views to become what engines carry, once nothing is sent any more."""
    rng: random.Random = field(default_factory=random.Random)
    """Choices of the scenario: from the seed and its name, so that the same seed chooses the same."""
    _target: Target | None = None
    _history: Writer | None = None
    _http: aiohttp.ClientSession | None = None
    _sender: Sender | None = None
    _happened: list[Check] = field(default_factory=list)
    _holds: list[Check] = field(default_factory=list)
    _injected: list[str] = field(default_factory=list)
    _broken: list[Finding] = field(default_factory=list)
    """Runs to compare with that came to nothing."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self._seed_text)

    # what a scenario says

    @property
    def target(self) -> Target:
        """The running cluster."""
        assert self._target is not None, "a scenario plays inside `play`"
        return self._target

    @property
    def history(self) -> Writer:
        """Where records go."""
        assert self._history is not None, "a scenario plays inside `play`"
        return self._history

    @property
    def http(self) -> aiohttp.ClientSession:
        """For requests of the scenario's own."""
        assert self._http is not None, "a scenario plays inside `play`"
        return self._http

    @property
    def sender(self) -> Sender:
        """The load, and ``call`` for single requests besides it."""
        assert self._sender is not None, "a scenario plays inside `play`"
        return self._sender

    @property
    def replicas(self) -> list[str]:
        """Names of the replicas, as they are now."""
        if self._target is not None:
            return list(self._target.replicas())
        return [f"picker-{number}" for number in range(self.topology.replicas)]

    @property
    def engines(self) -> list[str]:
        """Names of the engines."""
        return [f"engine-{number}" for number in range(self.topology.workers)]

    def a_replica(self) -> str:
        """One of the replicas, by the seed."""
        return self.rng.choice(self.replicas)

    async def a_busy_replica(self, *, at_least: int) -> str:
        """One of the replicas, by the seed, once it has so many requests of its own under way; soon, in any case.

        The seed says what is sent, not through which replica the gateway sends it.
        """
        replica, until = self.a_replica(), time.monotonic() + BUSY_SECONDS
        while (  # noqa: ASYNC110 - a page is asked
            await own_bookings(self.target, self.http, replica) < at_least and time.monotonic() < until
        ):
            await asyncio.sleep(0.1)
        return replica

    def an_engine(self) -> str:
        """One of the engines, by the seed."""
        return self.rng.choice(self.engines)

    async def steady(self, *, seconds: float) -> None:
        """Begin the load and let it run undisturbed."""
        self._phase("steady")
        self._start_load()
        await asyncio.sleep(seconds)

    async def hold(self, *, seconds: float) -> None:
        """Let everything go on as it is."""
        self._phase("hold")
        await asyncio.sleep(seconds)

    async def settle(self, *, seconds: float) -> None:
        """Everything is healed; the load goes on."""
        self._phase("settle")
        await asyncio.sleep(seconds)

    @contextlib.asynccontextmanager
    async def inject(self, *injections: Injection) -> AsyncIterator[None]:
        """Bring about all of these, in order; heal them in the opposite order when the block is left."""
        async with contextlib.AsyncExitStack() as stack:
            for injection in injections:
                self._injected.append(self.target.words(injection))
                self._phase(f"inject {injection.kind} {injection.target}")
                if self.faults:
                    await stack.enter_async_context(self.target.enter(injection))
            yield

    def streams(self) -> Streams:
        """A gateway of the scenario's own, whose every step it times itself."""
        return Streams(self.history, self.target.extproc)

    @property
    def soak_seconds(self) -> float:
        """How long a soak was asked to take."""
        return self.stage.soak_seconds

    def lost(self, picks: int) -> int:
        """How many picks a replica's death may cost: those in hand, and those sent to it until the gateway notices."""
        if self._target is None or self.scenario.load is None:
            return picks
        late = self._target.notice_seconds * self.scenario.load.rate / max(1, self.topology.replicas)
        return picks + math.ceil(late)

    @property
    def ending_in_good_order(self) -> tuple[Check, ...]:
        """What holds where a replica is ended in good order: nothing fails, nothing is cut, every booking is right.

        On a cluster its log stream may close while an entry is on its way, and gateways do not send it again: an end
        that nobody told.
        """
        return ALWAYS if self._pool_is_ours else (answered(), whole(), *UNTOLD)

    def note(self, name: str, **value: Any) -> None:
        """Write down something of the scenario's own, which its checks read."""
        self.history.write("scenario", "note", "info", name=name, **value)

    def happened(self, *checks: Check) -> None:
        """What must be in the history, or the verdict is unknown at best."""
        self._happened += checks

    def holds(self, *checks: Check) -> None:
        """What must hold, or the verdict is fail."""
        self._holds += checks

    # how it is played

    async def play(self) -> None:
        """Play it, its twins first; judge it. Raises ScenarioFailed unless the verdict is pass."""
        __tracebackhide__ = True  # the verdict says what broke; the lines that led here do not
        twins = {name: await self._twin(name) for name in self.scenario.twins}
        result = await self.perform(twins)
        self.stage.done(result)
        if result.verdict is not Verdict.PASS:
            raise ScenarioFailed(result.failures())

    async def perform(self, twins: Mapping[Twin, Story | None]) -> Result:
        """Play it once and judge it. Never raises but for cancellation: what breaks is unknown."""
        begun = time.monotonic()
        file = self._fresh_file()
        broken = list(self._broken)
        try:
            self._target = await self.stage.cluster(self.topology)
            self.topology = self._target.topology
            await self._record(file)
        except TimeoutError:
            broken.append(unknown(PLAYED, f"it was not over within its budget of {self.budget:g} s"))
        except Exception as error:  # noqa: BLE001 - whatever broke, the history up to then is judged and shown
            broken.append(unknown(PLAYED, f"{type(error).__name__}: {error}"))
        story, findings = await asyncio.to_thread(self._judge, file, twins)
        findings = [*broken, *findings]
        verdict = worst(each.verdict for each in findings)
        if verdict is not Verdict.PASS:
            if self._target is not None:
                self._target.keep_logs()
            await self.stage.discard()
        return Result(
            scenario=self.scenario,
            topology=self.topology,
            seed=self.stage.seed,
            verdict=verdict,
            findings=tuple(findings),
            history=file,
            seconds=time.monotonic() - begun,
            story=story,
            faults=tuple(self._injected),
        )

    async def _twin(self, name: Twin) -> Story | None:
        topology = replace(self.topology, replicas=1) if name == "one_replica" else self.topology
        key = f"{name} {topology.key} {self.scenario.name} {self.stage.seed}"
        known = self.stage.twin(key)
        if known is None:
            run = Run(self.scenario, topology, self.stage, faults=False)
            result = await run.perform({})
            if result.verdict is not Verdict.PASS:  # it says nothing, and what needs it is unknown
                why = "; ".join(each.summary for each in result.findings if each.verdict is not Verdict.PASS)
                self._broken.append(unknown(f"the run to compare with ({name}) is played to its end", why))
                return None
            known = result.story
            if known is not None:
                self.stage.keep_twin(key, known)
        return known

    def _judge(self, file: Path, twins: Mapping[Twin, Story | None]) -> tuple[Story | None, list[Finding]]:
        try:
            story = read_story(read(file))
        except HistoryError as error:
            return None, [unknown("the history can be read", str(error))]
        story.twins = {str(name): twin for name, twin in twins.items() if twin is not None}
        if not self.faults:
            return story, [replace(unknown("comparison", "not judged"), verdict=Verdict.PASS)]
        happened = [_as_happened(judge(check, story)) for check in (KeptPace(), *self._happened)]
        # the suite itself starts the replicas of its own pool, and one whose replica ended is not whole
        always = [] if self._pool_is_ours else [KeptRunning()]
        return story, [*happened, *(judge(check, story) for check in (*always, *self._holds))]

    async def _record(self, file: Path) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, read_bufsize=_LINE_BYTES) as self._http,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as looks,
        ):
            with Writer(file) as self._history:
                self.history.write("run", "scenario", "info", **self._header())
                self.target.begin(self._tell)
                observer = Observer(
                    self.history, looks, self.target.replicas(), self.target.truths(), self._look_seconds,
                    headers=self.target.headers, same_clock=self.target.same_clock,
                )  # fmt: skip
                tag = f"{self.stage.seed}-{self.scenario.name}-{time.monotonic_ns() % 1_000_000_000:x}"
                load = self.scenario.load or OpenLoop()
                self._sender = Sender(
                    self.target.gateway,
                    self.history,
                    self._http,
                    tag=tag,
                    timeout=load.timeout,
                    retries=load.retries,
                    model=self.target.model,
                )
                await observer.look()
                looking = asyncio.create_task(observer.run(), name="looks")
                pacing = asyncio.create_task(note_stalls(self._history), name="pace")
                try:
                    async with asyncio.timeout(self.budget):
                        await self.scenario.play(self)
                        await self._finish(looks)
                finally:
                    await self._sender.abandon()
                    for task in (looking, pacing):
                        task.cancel()
                    await asyncio.gather(looking, pacing, return_exceptions=True)
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(observer.look(), 5.0)
                    self.history.write("run", "end", "info")

    async def _finish(self, looks: aiohttp.ClientSession) -> None:
        await self._audit()
        self._phase("drain")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.sender.stop(), DRAIN_SECONDS)
        self._phase("quiet")
        await self._quiet(looks, self.patience)
        await self._audit()

    async def _audit(self) -> None:
        """What the plane's server itself holds, where it can be asked."""
        if AUDIT in self.target.lacks:
            return
        begun = time.monotonic()
        try:
            page = await self.target.audit()
        except AuditError as error:
            self.history.write("plane", "audit", "fail", asked=begun, fault=str(error))
        else:
            self.history.write("plane", "audit", "ok", asked=begun, **page)

    async def _quiet(self, looks: aiohttp.ClientSession, seconds: float) -> None:
        """Wait until nothing is carried and nothing booked; the checks judge whether it came about in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await is_quiet(self.target, looks):
                await asyncio.sleep(0.6)  # so that the looks see it too
                return
            await asyncio.sleep(0.25)

    def _start_load(self) -> None:
        if self.scenario.load is not None:
            wanted = self.scenario.load.arrivals(f"{self.stage.seed} {self.scenario.name}", self.budget)
            self.sender.start(wanted)

    def _phase(self, name: str) -> None:
        self.history.write("run", "phase", "info", name=name)

    def _tell(self, fault: Fault) -> None:
        kind = {"begin": "invoke", "seen": "info", "healing": "info", "healed": "ok"}[fault.phase]
        self.history.write(
            "nemesis", "fault", kind, id=fault.id, kind=fault.kind, target=fault.target,  # type: ignore[arg-type]
            phase=fault.phase, value=dict(fault.value),
        )  # fmt: skip

    def _header(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.scenario.name,
            "seed": self.stage.seed,
            "plane": self.topology.plane,
            "topology": self.topology.words(),
            "faults": self.faults,
            "load": self.scenario.load.words() if self.scenario.load else "its own requests",
            "engines": dict(self.target.engines()),
            "replicas": list(self.target.replicas()),
            "hold": self.topology.hold,
            "fails_open": self.topology.fails_open,
            "access_log": self.topology.access_log,
            "versions": versions(),
            "target": dict(self.target.told()),
            "lacks": list(self.target.lacks),
        }

    @property
    def _pool_is_ours(self) -> bool:
        """Whether the suite started everything that it plays on."""
        return self._target is None or "local" in self._target.offers

    @property
    def budget(self) -> float:
        """Seconds within which it must be over: the scenario's, and in a soak the time that was asked for, too."""
        slack = self._target.slack_seconds if self._target is not None else 0.0
        return self.scenario.budget + slack + (self.soak_seconds if "soak" in self.scenario.suites else 0.0)

    @property
    def _look_seconds(self) -> float:
        """Between two looks: in a long soak fewer, so that its history can still be read."""
        return max(LOOK_SECONDS, self.budget / SOAK_LOOKS) if "soak" in self.scenario.suites else LOOK_SECONDS

    @property
    def _seed_text(self) -> str:
        return f"scenario {self.stage.seed} {self.scenario.name}"

    def _fresh_file(self) -> Path:
        kind = "" if self.faults else f"-{'twin' if self.topology.replicas > 1 else 'one-replica'}"
        stem = f"{self.scenario.name}-{self.topology.plane}{kind}"
        folder = self.stage.folder / "histories"
        names = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.jsonl" for n in range(1, 1000))
        return next(name for name in names if not name.exists())


def _as_happened(finding: Finding) -> Finding:
    """What did not happen makes the run mean nothing: unknown, never fail."""
    verdict = Verdict.UNKNOWN if finding.verdict is Verdict.FAIL else finding.verdict
    return replace(finding, verdict=verdict, kind="happened")
