"""One run of all checks: every replica side by side, each probe with a deadline."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from picker.check import extproc
from picker.check.extproc import ProbeError, Security
from picker.check.judging import MARK, Word, judged, read_status
from picker.check.places import Found, Place
from picker.check.rows import Row, failed, ok, skipped, warning
from picker.peers.asking import AskError, Peer
from picker.peers.counts import Counts
from picker.peers.credentials import Credentials
from picker.serving.modes import BodyMode
from picker.settings import Settings
from picker.wiring import rules_of
from stateplane.backends import open_plane
from stateplane.booking import SCHEMA, Owner
from stateplane.errors import StatePlaneError

PARALLEL = 16
"""Most replicas that are probed at one moment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked, and how."""

    settings: Settings
    credentials: Credentials
    security: Security
    replicas: int | None = None
    """How many there should be at least; None: as many as are found."""
    model: str = ""
    plane_url: str = ""
    seconds: float = 5.0
    """Deadline of one probe."""
    mode: BodyMode = BodyMode.BUFFERED
    why_not: dict[str, str] = field(default_factory=dict)
    """Checks that cannot be made here, each with the reason."""


async def checked(find: Callable[[], Awaitable[Found]], plan: Plan) -> list[Row]:
    """All checks, once."""
    found = await find()
    if not found.places:
        return [*found.rows, skipped("replicas", "", "no address of a replica is known")]
    peer = Peer(plan.credentials, Counts())
    free = asyncio.Semaphore(PARALLEL)

    async def one(place: Place) -> tuple[list[Row], Word | None]:
        async with free:
            return await _Probe(place, plan, peer).all()

    try:
        probed = await asyncio.gather(*(one(place) for place in found.places))
    finally:
        await peer.close()
    words = [word for _, word in probed if word is not None]
    rows = [row for each, _ in probed for row in each]
    overall = judged(words, expected=plan.replicas, asked=len(found.places))
    return [*found.rows, *rows, *overall, await _plane(plan, words)]


async def until_well(find: Callable[[], Awaitable[Found]], plan: Plan, *, wait: float) -> list[Row]:
    """The same again until nothing fails, for ``wait`` seconds at most: a rollout takes a moment to settle."""
    deadline = time.monotonic() + wait
    while True:
        rows = await checked(find, plan)
        if not any(row.state == "failed" for row in rows) or time.monotonic() >= deadline:
            return rows
        await asyncio.sleep(1.0)


class _Probe:
    """Everything that is asked of one replica."""

    def __init__(self, place: Place, plan: Plan, peer: Peer) -> None:
        self._place = place
        self._plan = plan
        self._peer = peer

    async def all(self) -> tuple[list[Row], Word | None]:
        """Its rows, and what it said of itself, where it could be read."""
        health, (status, word) = await asyncio.gather(self._health(), self._status())
        request_id = MARK + secrets.token_hex(6)
        picked = await self._pick(request_id, word)
        rows = [health, status, picked]
        if word is not None and picked.state == "ok":
            rows.append(await self._why(request_id))
        return rows, word

    async def _health(self) -> Row:
        name, where = self._place.name, self._place.health
        try:
            well = await extproc.healthy(where, seconds=self._plan.seconds)
        except ProbeError as error:
            return failed(
                "health", name, f"{where}: {error}", "does the replica run? May this machine reach the port?"
            )
        if well:
            return ok("health", name, f"{where} is serving")
        return failed(
            "health", name, f"{where} is not serving", "see /readyz of that replica for what it waits for"
        )

    async def _status(self) -> tuple[Row, Word | None]:
        name, where = self._place.name, self._place.peers
        unable = self._plan.why_not.get("status")
        if unable:
            return skipped(
                "status", name, unable, "give the replicas' secret: PICKER_PEERS_SECRET_FILE"
            ), None
        try:
            summary = await self._peer.summary(where, seconds=self._plan.seconds)
            page = await self._peer.status(where, seconds=self._plan.seconds)
            word = Word(name, summary, read_status(page))
        except AskError as error:
            return _unread(name, where, error), None
        except msgspec.ValidationError as error:
            return failed("status", name, f"{where}: the status makes no sense: {error}"), None
        said = f"{summary.name} ({summary.incarnation}) is {summary.state}"
        if summary.state != "ready":
            return warning("status", name, said, "; ".join(summary.degraded)), word
        if summary.degraded:
            return warning("status", name, f"{said}, degraded", "; ".join(summary.degraded)), word
        return ok("status", name, said), word

    async def _pick(self, request_id: str, word: Word | None) -> Row:
        name, plan, where = self._place.name, self._plan, self._place.extproc
        unable = plan.why_not.get("pick")
        if unable:
            return skipped("pick", name, unable, "give --tls-certificate and --tls-key of a gateway")
        try:
            pick = await extproc.pick(
                where,
                request_id=request_id,
                model=plan.model,
                security=plan.security,
                seconds=plan.seconds,
                mode=plan.mode,
            )
        except ProbeError as error:
            return failed("pick", name, f"{where}: {error}",
                          "do TLS and port fit (PICKER_TLS, PICKER_GRPC_PORT)? Are there workers?")  # fmt: skip
        known = {worker.name for worker in word.status.workers} if word is not None else set()
        if known and pick.worker not in known:
            return failed("pick", name, f"{where} named {pick.worker}, which is none of its workers")
        return ok("pick", name, f"{where} named {pick.worker}")

    async def _why(self, request_id: str) -> Row:
        name, where = self._place.name, self._place.peers
        try:
            decisions = await self._peer.why(where, request_id, seconds=self._plan.seconds)
        except AskError as error:
            return failed("why", name, f"{where}: {error}")
        if not decisions:
            return warning("why", name, "the pick is not remembered", "is PICKER_WHY_KEEP 0?")
        return ok("why", name, f"tells of {request_id}")


def _unread(name: str, where: str, error: AskError) -> Row:
    """A port that is closed on purpose is no fault; one that refuses us cannot be read."""
    if error.reason in ("no_credentials", "refused", "certificate"):
        return skipped(
            "status", name, f"{where}: {error}", "give the replicas' secret or certificate: PICKER_PEERS_*"
        )
    return failed("status", name, f"{where}: {error}",
                  "is the peers port open (PICKER_PEERS_SECRET_FILE), and may this machine reach it?")  # fmt: skip


async def _plane(plan: Plan, words: Sequence[Word]) -> Row:
    """A round trip of our own: join, look, leave. Nothing is booked."""
    check, url = "plane directly", plan.plane_url
    if not url or url.startswith("memory:"):
        return skipped(check, "", "no shared plane is named here", "give --plane, or PICKER_PLANE_URL")
    plane, owner = plan.settings.plane, Owner(f"{MARK}{secrets.token_hex(3)}", secrets.token_hex(4))
    try:
        opened = open_plane(
            url,
            pool=plan.settings.pool.pool,
            owner=owner,
            rules=rules_of(plan.settings),
            timeout=plan.seconds,
            password_file=plane.plane_password_file,
            ca_file=plane.plane_ca_file,
            certificate_file=plane.plane_certificate_file,
            key_file=plane.plane_key_file,
        )
    except StatePlaneError as error:
        return failed(check, "", str(error), "see docs/plane-on-redis.md for how a plane is named")
    try:
        async with asyncio.timeout(3 * plan.seconds):
            await opened.start({"schema": str(SCHEMA)})
            begun = time.monotonic()
            snapshot = await opened.snapshot()
            took = time.monotonic() - begun
            await opened.leave()
    except (StatePlaneError, TimeoutError) as error:
        return failed(
            check, "", str(error) or "no answer in time", "is the server there, and does it let us in?"
        )
    finally:
        await opened.close()
    epochs = {word.summary.plane.epoch for word in words if word.summary.plane.joined}
    epoch = snapshot.version.epoch
    if epochs and epoch not in epochs:
        return failed(check, "", f"epoch {epoch}, while the replicas follow {', '.join(map(str, sorted(epochs)))}",
                      "do they reach the same server?")  # fmt: skip
    return ok(check, "", f"epoch {epoch}, read in {took * 1000:.1f} ms")
