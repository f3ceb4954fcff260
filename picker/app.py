"""One replica: wires the parts, owns every task, starts and stops in order.

Start: ports first, then everything else at once; ready when workers, plane and index are there or the warm-up is over.
SIGTERM: not ready, serve on for the drain minimum, wait for open streams, hand the bookings over, leave, end.
A root task that ends is a fault: the process ends with a message.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from picker import logs
from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.admin.server import AdminServer, Pages
from picker.core.index import PrefixIndex
from picker.core.predicted import Predicted
from picker.eligibility import Eligibility
from picker.events.subscriber import Subscriber
from picker.membership import Membership
from picker.neighbours import Neighbours
from picker.peers.port import Told
from picker.peers.shapes import Summary
from picker.picking import Picking
from picker.pool import WorkerPool
from picker.readiness import Need, Readiness
from picker.reconciling import Reconciling
from picker.serving.server import PortError, Server
from picker.settings import Settings, SettingsError
from picker.status import Status
from picker.summary import summary_of
from picker.tls import TlsError
from picker.underway import Underway
from picker.wiring import (
    open_criteria,
    open_desk,
    open_objectives,
    open_peer_source,
    open_protection,
    open_rules,
    open_tokens,
    open_worker_source,
)
from picker.workers.adapters import AdapterNames
from picker.workers.models import ModelLists
from picker.workers.registry import Registry
from picker.workers.scrape import Scraper
from stateplane.booking import Owner

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.1
SWEEP_ENTRIES = 2000
"""Entries of departed workers that one tick takes out of the index: well under 5 ms."""

YOUNG_OBJECTS = 10_000, 10, 10
"""Objects made before the garbage collector looks at them, and how many such looks before it looks at older ones. Of
what a request makes, nothing is left to the collector: the default of 700 costs a decision 29 us instead of 8."""

SECOND_SIGNAL_SECONDS = 1.0
"""A second signal ends the replica at once; some supervisors send the first one twice, which is not meant so."""

STOP_SECONDS = 5.0
"""How long one step of the shutdown may take once the drain is over."""


class Replica:
    """One replica of the picker."""

    def __init__(self, settings: Settings) -> None:
        name = settings.pool.replica_name or f"picker-{secrets.token_hex(3)}"
        settings = settings.model_copy(
            update={"pool": settings.pool.model_copy(update={"replica_name": name})}
        )
        self.settings = settings
        clock = self._clock = time.monotonic
        self.owner = Owner(name, secrets.token_hex(4))
        self.metrics = Metrics()
        self.journal = Journal(settings.admin.why_keep)
        self.index = PrefixIndex()
        self.predicted = Predicted(life=settings.events.predicted_seconds)
        self.registry = Registry(
            stale_seconds=settings.workers.report_stale_seconds,
            adapters=AdapterNames(settings.requests.loras, settings.requests.base_model),
        )
        self.models = ModelLists(self.registry, settings.workers, clock=clock)
        self.scraper = Scraper(self.registry, settings.workers, clock=clock)
        self.pool = WorkerPool(self.registry, settings.workers, block_size=settings.price.block_size)
        self.criteria = open_criteria(settings)
        self.tokens = open_tokens(settings)
        self.rules = open_rules(settings)
        self.objectives = open_objectives(settings)
        self.desk, self.plane = open_desk(settings, self.owner, clock=clock)
        self.underway = Underway(
            self.desk, known=self._knows_address, clock=clock, reports=self._reports,
            blind_seconds=settings.plane.drain_blind_seconds,
        )  # fmt: skip
        self.subscriber = Subscriber(
            settings.events, settings.pool.pool, self.index, clock=clock, on_stored=self._stored
        )
        self.reconciling = Reconciling(
            self.desk,
            clock=clock,
            reports=self._reports,
            log_expected=lambda: self.membership.log_expected,
            blind_seconds=settings.plane.drain_blind_seconds,
        )
        self.membership = Membership(
            settings, self.desk, self.underway, clock=clock, rules=lambda: self.rules.digest
        )
        self.eligibility = Eligibility(
            settings.price, known=self.pool, criteria=self.criteria, objectives=self.objectives.priority
        )
        self.picking = Picking(
            settings,
            pool=self.pool,
            index=self.index,
            bookings=self.desk,
            tokens=self.tokens,
            underway=self.underway,
            journal=self.journal,
            metrics=self.metrics,
            clock=clock,
            wall=time.time,
            rng=random.Random(),
            predicted=self.predicted,
            events=self.subscriber,
            tails=self.subscriber.tails,
            eligibility=self.eligibility,
            adapters=self.registry.adapters,
            rules=self.rules,
        )
        self.server = Server(settings.serving, self.picking, hold=self.membership.hold, clock=clock)
        self.workers = open_worker_source(settings)
        self.peers = open_peer_source(settings)
        self.readiness = Readiness(self._needs(), warmup=settings.life.warmup_seconds, begun=clock())
        self.protection = open_protection(settings, clock=clock)
        self.status = Status(self, started=time.time(), clock=clock)
        self.neighbours = self._open_neighbours(clock())
        self.admin = AdminServer(settings.admin, self._pages(), protection=self.protection)
        self.desk.view.listen(self.pool.booked)
        self.registry.listen(
            joined=self._joined,
            left=self._left,
            asked=self.reconciling.asked,
            reported=self.reconciling.reported,
        )
        self._stop = asyncio.Event()
        self._told_at = 0.0

    def _open_neighbours(self, begun: float) -> Neighbours:
        def summary() -> Summary:
            now = self._clock()
            return summary_of(self, uptime=now - begun, now=now)

        told = Told(summary=summary, status=self.status.shown, why=self.journal.why)
        return Neighbours(self.settings, told, peers=lambda: [peer.address for peer in self.membership.peers])

    def _needs(self) -> tuple[Need, ...]:
        return (
            Need("workers", lambda: self.registry.told, "no source has named any worker yet"),
            Need("plane", lambda: self.desk.joined, "the state plane is away: choosing on the last known view"),
            Need("events", lambda: not self.subscriber.enabled or self.subscriber.link.connected,
                 "the KV events' server is away: the index stays as it was"),
            Need("index", lambda: not self.subscriber.pending(), "some workers' cached blocks are not known yet"),
            Need("tokenizers", lambda: self.tokens.tried, "tokenizers are still being loaded"),
            Need("model_rewrites", lambda: self.rules.known, "the model rewrites were never read in order"),
        )  # fmt: skip

    def _pages(self) -> Pages:
        self.metrics.gather(
            counts=self.status.counts(),
            gauges=self.status.gauges,
            workers=self.status.worker_gauges,
            pool_size=lambda: len(self.registry.names),
            scrapes=self.status.scrapes,
            predictions=self.predicted.ratios,
        )
        return Pages(
            metrics=self.metrics.page,
            ready=lambda: (self.readiness.ready, self.readiness.shown()),
            status=self.status.shown,
            bookings=self.status.bookings,
            why=self.journal.why,
            log_level=logs.level,
            set_log_level=logs.set_level,
            everywhere=self.neighbours.everywhere,
        )

    # the pool

    def _knows_address(self, address: str) -> bool:
        return address in self.registry.names

    def _reports(self, worker: str) -> bool:
        return self.registry.report(worker, self._clock()) is not None

    def _joined(self, worker: str) -> None:
        log.info("worker joined", worker=worker)
        self.index.add(worker)
        self.subscriber.watch(worker)

    def _left(self, worker: str) -> None:
        log.info("worker left", worker=worker)
        self.subscriber.unwatch(worker)
        self.index.drop(worker)
        self.underway.worker_left(worker)
        self.predicted.left(worker)
        self.pool.left(worker)
        self.reconciling.left(worker)

    def _stored(self, worker: str, hashes: Sequence[int]) -> None:
        self.underway.stored(worker, hashes)
        self.predicted.confirmed(worker, hashes)

    def _judge_predictions(self, now: float) -> None:
        self.predicted.expire(now)
        for turn in self.predicted.turns():
            say = log.error if turn.low else log.info
            say(
                "predicted blocks fail to come: are tokenizer, template, block size and adapters the engine's?"
                if turn.low
                else "predicted blocks come again",
                model=turn.model,
                confirmed=round(turn.ratio, 3),
            )

    # life

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        try:
            await self._listen()
            if not await self.desk.start():
                log.warning("the state plane is away at the start", reason=self.desk.status().reason)
            return await self._serve()
        finally:
            await self._close()

    async def _listen(self) -> None:
        """Open the ports.

        Raises:
            SettingsError: a port is taken, or the certificate cannot be used.
        """
        try:
            await self.admin.start()
        except OSError as error:
            where = f"{self.settings.admin.admin_host}:{self.settings.admin.metrics_port}"
            raise SettingsError(
                [f"PICKER_METRICS_PORT or PICKER_ADMIN_HOST: cannot listen on {where}: {error}"]
            ) from error
        await self.neighbours.start()
        try:
            await self.server.start()
        except (PortError, TlsError) as error:
            raise SettingsError([str(error)]) from error

    def _signalled(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._told_at = self._clock()
        elif self._clock() - self._told_at > SECOND_SIGNAL_SECONDS:
            log.warning("second signal: ending at once")
            os._exit(1)

    async def _serve(self) -> int:
        tasks = {
            asyncio.create_task(task, name=name)
            for name, task in self._root_tasks().items()
        }  # fmt: skip
        stopping = asyncio.create_task(self._stop.wait(), name="signal")
        try:
            done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping not in done:
                return self._fault(done)
            await self._drain()
            await self._step("bookings", self.desk.leave())
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
        return 0

    def _root_tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {
            "workers": self._follow_workers(),
            "peers": self._follow_peers(),
            "scraper": self.scraper.run(),
            "models": self.models.run(),
            "events": self.subscriber.run(),
            "plane": self.desk.run(),
            "tokenizers": self.tokens.run(),
            "model_rewrites": self.rules.run(),
            "objectives": self.objectives.run(),
            "ticks": self._ticks(),
        }

    def _fault(self, done: set[asyncio.Task[Any]]) -> int:
        for task in done:
            error = task.exception()
            log.error(
                "a task that must not end has ended", task=task.get_name(), error=repr(error), exc_info=error
            )
        return 1

    async def _follow_workers(self) -> None:
        async for endpoints in self.workers.sets():
            self.registry.update(endpoints)

    async def _follow_peers(self) -> None:
        async for peers in self.peers.sets():
            self.membership.peers = peers
        await asyncio.Event().wait()

    async def _ticks(self) -> None:
        while True:
            now = self._clock()
            self.membership.tick(now)
            self.underway.tick(now, log_expected=self.membership.log_expected, deaf=self.desk.degraded)
            self.reconciling.tick(now)
            self.index.sweep(SWEEP_ENTRIES)
            self.subscriber.tails.sweep(SWEEP_ENTRIES)
            self._judge_predictions(now)
            if self.readiness.look(now):
                self._became_ready()
            await asyncio.sleep(TICK_SECONDS)

    def _became_ready(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*YOUNG_OBJECTS)
        self.server.set_ready(True)
        log.info("ready", replica=str(self.owner), pool=self.settings.pool.pool, **self.readiness.shown())

    async def _drain(self) -> None:
        """Serve on while the gateway still sends, then until no stream is open."""
        life = self.settings.life
        log.info("stopping", open_streams=self.server.open_streams)
        begun = self._clock()
        self.readiness.stop()
        self.server.set_ready(False)
        await asyncio.sleep(life.drain_min_seconds)
        self.server.close_log_streams()
        left = max(life.drain_max_seconds - (self._clock() - begun), 0)
        cut = await self.server.drain_streams(left)
        log.info("drained", closed_with_ok=cut, seconds=round(self._clock() - begun, 3))

    async def _close(self) -> None:
        """Every step has an end; what cannot be done in time is left to the leases."""
        await self._step("plane", self.plane.close())
        await self._step("serving", self.server.stop())
        await self._step("admin", self.admin.stop())
        await self._step("peers", self.neighbours.stop())
        if self.protection is not None:
            await self._step("protection", self.protection.close())
        self.tokens.close()
        self.metrics.close()
        log.info("ended", replica=str(self.owner))

    async def _step(self, name: str, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await step
        except TimeoutError:
            log.warning("a part did not stop in time", part=name, seconds=STOP_SECONDS)


async def run(settings: Settings) -> int:
    """Run one replica until it is told to stop; returns the exit status."""
    return await Replica(settings).run()
