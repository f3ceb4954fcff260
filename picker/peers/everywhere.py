"""Pages made of all replicas' answers: any replica shows the whole pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from picker.peers.asking import AskError, Asking, Heard, Round, Silent
from picker.peers.counts import FAILURES, Counts
from picker.peers.shapes import Summary, shown

SAME = ("settings_digest", "version")
"""What replicas should have in common, beside the plane's epoch."""


class Everywhere:
    """What an operator may ask of any replica at this one."""

    def __init__(
        self,
        asking: Asking,
        *,
        summary: Callable[[], Summary],
        status: Callable[[], Mapping[str, Any]],
        why: Callable[[str], Sequence[Mapping[str, Any]]],
        counts: Counts,
    ) -> None:
        self._asking = asking
        self._summary = summary
        self._status = status
        self._why = why
        self._counts = counts

    async def replicas(self) -> Mapping[str, Any]:
        """Every replica in short, this one first, who did not answer, and whether all agree."""
        mine = self._summary()
        others, silent = self._sorted(mine, await self._asking.summaries())
        all_of_them = [mine, *(each.value for each in others)]
        answered = {each.name for each in all_of_them}
        return {
            "asked_by": mine.name,
            "replicas": [
                shown(mine) | {"address": None, "answer_ms": None},
                *(
                    shown(each.value) | {"address": each.address, "answer_ms": round(each.seconds * 1000, 3)}
                    for each in others
                ),
            ],
            "unanswered": [each.shown() for each in silent],
            "members_unheard": sorted(set(mine.members) - answered),
            "agree": {what: len({getattr(each, what) for each in all_of_them}) == 1 for what in SAME}
            | {"plane_epoch": len({each.plane.epoch for each in all_of_them if each.plane.joined}) <= 1},
        }

    async def status(self, name: str) -> tuple[int, Mapping[str, Any]]:
        """HTTP status and page: the whole status of the replica of that name."""
        mine = self._summary()
        if name == mine.name:
            return 200, self._status()
        others, silent = self._sorted(mine, await self._asking.summaries())
        claims = [each.address for each in others if each.value.name == name]
        if claims:
            return await self._status_at(claims, name[:200])
        known = sorted({mine.name, *(each.value.name for each in others)})
        return 404, {
            "error": "no replica of that name answered",
            "name": name[:200],
            "replicas": known,
            "unanswered": [each.shown() for each in silent],
        }

    async def _status_at(self, claims: Sequence[str], name: str) -> tuple[int, Mapping[str, Any]]:
        """The status of the one replica that has claimed the name."""
        if len(claims) > 1:
            return 409, {"error": f"several replicas call themselves {name}", "addresses": list(claims)}
        (address,) = claims
        try:
            page = await self._asking.status(address)
        except AskError as error:
            return 502, {"error": f"replica {name} at {address}: {error}"}
        if page["replica"]["name"] != name:
            return 502, {
                "error": f"the replica at {address} called itself {name}, and its status names another"
            }
        return 200, page

    async def why(self, name: str) -> tuple[int, Mapping[str, Any]]:
        """HTTP status and page: what this replica remembers under an id; where it knows nothing, what others do."""
        mine, decisions = self._summary().name, self._why(name)
        if decisions:
            return 200, {"id": name, "answered_by": [mine], "decisions": list(decisions), "unanswered": []}
        found = await self._asking.why(name)
        silent = [each.shown() for each in found.silent]
        if found.heard:
            return 200, {
                "id": name,
                "answered_by": [_teller(each) for each in found.heard],
                "decisions": [decision for each in found.heard for decision in each.value],
                "unanswered": silent,
            }
        text = "no replica that answered remembers a decision under that id"
        return 404, {"error": text, "id": name[:200], "asked": found.asked, "unanswered": silent}

    def _sorted(self, mine: Summary, found: Round[Summary]) -> tuple[list[Heard[Summary]], list[Silent]]:
        """The other replicas of this pool, each once, by name: with two families of addresses each is asked twice."""
        seen, others, silent = {(mine.name, mine.incarnation)}, [], list(found.silent)
        for each in sorted(found.heard, key=lambda one: (one.value.name, one.address)):
            value = each.value
            if value.pool != mine.pool:
                self._counts.failures["pool"] += 1
                silent.append(Silent(each.address, "pool", f"{FAILURES['pool']}: {value.pool}"))
            elif (value.name, value.incarnation) not in seen:
                seen.add((value.name, value.incarnation))
                others.append(each)
        return others, silent


def _teller(heard: Heard[list[dict[str, Any]]]) -> str:
    """Who answered: the replica by its decisions' word, else its address."""
    name = heard.value[0].get("replica")
    return name[:253] if isinstance(name, str) and name else heard.address
