"""Who may take a request beyond what the pool says: own criteria, and the LoRA adapter that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from picker.core.adapters import ADAPTER, Held, narrowed
from picker.core.choose import FULL, Candidate, Surcharges
from picker.core.criteria import Traits, WorkerTraits
from picker.criteria.judging import Criteria, Prepared
from picker.requests.ask import Ask
from picker.settings import PriceSettings


class Known(Protocol):
    """What is known of workers beside their load."""

    def held(self, worker: str, now: float) -> Held:
        """The LoRA adapters that the worker holds, as far as is known."""
        ...

    def traits(self, worker: str, now: float) -> WorkerTraits:
        """What criteria may know of the worker."""
        ...


class Eligibility:
    """Asks criteria, then looks for the adapter among those that criteria left."""

    def __init__(
        self,
        settings: PriceSettings,
        *,
        known: Known,
        criteria: Criteria | None = None,
        objectives: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.criteria = Criteria() if criteria is None else criteria
        self._objectives = objectives
        self._known = known
        self._asks = bool(self.criteria.names)
        self._narrows, self._load_blocks = settings.lora_narrow, settings.lora_load_blocks

    def prepare(
        self, ask: Ask, headers: Mapping[str, str], *, tokens: int, known: bool
    ) -> tuple[Prepared, ...]:
        """Ask the criteria once about a request. Without criteria it costs nothing."""
        if not self._asks:
            return ()
        traits = _traits(ask, headers, tokens, known=known)
        if traits.priority is None and (given := self._objectives(traits.objective)) is not None:
            # an objective's priority is the greater the earlier, a request's own the other way round
            traits = replace(traits, priority=-given)
        return self.criteria.prepare(traits)

    def judge(
        self, lora: str, prepared: Sequence[Prepared], candidates: Sequence[Candidate], now: float
    ) -> tuple[list[Candidate], Surcharges | None]:
        """The candidates, more of them barred perhaps, and what is added to their prices."""
        barred: dict[str, str] = {}
        added: dict[str, Mapping[str, float]] = {}
        if prepared:
            traits = [self._known.traits(one.worker, now) for one in candidates]
            verdict = self.criteria.weigh(prepared, traits)
            barred.update(verdict.barred)
            added.update(verdict.added)
        if lora and self._narrows:
            # a full worker keeps its place: its requests are refused for now, not sent to one that lacks the adapter
            open_to = [
                one.worker for one in candidates if one.barred in ("", FULL) and one.worker not in barred
            ]
            holdings = {worker: self._known.held(worker, now).holding(lora) for worker in open_to}
            lacking, loading = narrowed(holdings, load_blocks=self._load_blocks)
            barred.update(dict.fromkeys(lacking, ADAPTER))
            added |= {ADAPTER: loading} if loading else {}
        found = list(candidates)
        if barred:
            found = [
                one if one.barred or one.worker not in barred else one._replace(barred=barred[one.worker])
                for one in candidates
            ]
        return found, Surcharges(added) if added else None


def _traits(ask: Ask, headers: Mapping[str, str], tokens: int, *, known: bool) -> Traits:
    standing = ask.standing
    return Traits(
        model=ask.model,
        base_model=ask.base_model,
        lora=ask.lora,
        api=str(ask.api),
        headers=MappingProxyType(headers) if isinstance(headers, dict) else MappingProxyType(dict(headers)),
        prompt_tokens=tokens,
        tokens_known=known,
        objective="" if standing is None else standing.objective,
        fairness_id="" if standing is None else standing.fairness_id,
        priority=ask.priority if standing is None or standing.priority is None else standing.priority,
    )
