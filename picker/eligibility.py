"""Who may take a request beyond what the pool says: own criteria, the model it names, the LoRA adapter it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from picker.core.adapters import ADAPTER, Held, narrowed
from picker.core.choose import FULL, Candidate, Surcharges
from picker.core.criteria import Traits, WorkerTraits
from picker.core.models import MODEL
from picker.core.models import narrowed as narrowed_to_model
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

    @property
    def mixed(self) -> bool:
        """Whether workers are known to serve different models."""
        ...

    def serves(self, worker: str, model: str) -> bool | None:
        """Whether the worker serves a model of that name; None: it does not say what it serves."""
        ...


@dataclass(slots=True)
class Counts:
    """What became of requests in a pool whose workers serve different models, since the start."""

    model_narrowed: int = 0
    """Requests that only those workers might take that serve their model."""
    model_unserved: int = 0
    """Requests for a model that every worker is known not to serve: they went by load alone."""


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
        self.counts = Counts()
        self._known, self._by_model = known, settings.model_narrow
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

    def model(self, ask: Ask) -> str:
        """The model that a worker should serve to take the request; empty where any may."""
        if not self._by_model or not self._known.mixed:
            return ""
        return ask.base_model if ask.lora else ask.model

    def judge(
        self,
        lora: str,
        prepared: Sequence[Prepared],
        candidates: Sequence[Candidate],
        now: float,
        *,
        model: str = "",
    ) -> tuple[list[Candidate], Surcharges | None]:
        """The candidates, more of them barred perhaps, and what is added to their prices."""
        barred: dict[str, str] = {}
        added: dict[str, Mapping[str, float]] = {}
        if prepared:
            traits = [self._known.traits(one.worker, now) for one in candidates]
            verdict = self.criteria.weigh(prepared, traits)
            barred.update(verdict.barred)
            added.update(verdict.added)
        if model:
            barred.update(dict.fromkeys(self._others(model, candidates, barred), MODEL))
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

    def _others(
        self, model: str, candidates: Sequence[Candidate], barred: Mapping[str, str]
    ) -> frozenset[str]:
        """Those of the candidates that a request for the model does not go to."""
        open_to = [one for one in candidates if one.barred in ("", FULL) and one.worker not in barred]
        serves = {one.worker: self._known.serves(one.worker, model) for one in open_to}
        others = narrowed_to_model(serves, full={one.worker for one in open_to if one.full or one.barred})
        self.counts.model_narrowed += bool(others)
        self.counts.model_unserved += bool(serves) and all(served is False for served in serves.values())
        return others


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
