"""A scenario: a topology, a load, what goes wrong when, what must have happened, what must hold, in what time.

```python
@scenario(load=OpenLoop(rate=15), suites=("smoke", "release"), budget=60)
async def picks_go_on_while_the_plane_is_frozen(run: Run) -> None:
    '''While the plane stands still, every request is served from the view, and nothing reads as empty.'''
    await run.steady(seconds=5)
    async with run.inject(freeze("plane")):       # heals in its own finally
        await run.hold(seconds=8)
    await run.settle(seconds=6)
    run.happened(fault_seen("freeze"), calls_made(at_least=150))
    run.holds(*ALWAYS, picks_within(ms=250, during="freeze"))
```
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from chaos.load import OpenLoop
from chaos.topology import PLANES, PlaneName, Topology

if TYPE_CHECKING:
    from chaos.run import Run

Suite = Literal["smoke", "release", "soak"]
SUITES: tuple[Suite, ...] = get_args(Suite)
Twin = Literal["fault_free", "one_replica"]
"""A further run of the same scenario and seed to compare with: without faults, on as many replicas, or on one."""
USUAL = OpenLoop()
Story = Callable[["Run"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario, ready to be played."""

    name: str
    says: str
    """What it promises, in words: the first paragraph of its docstring."""
    source: str
    """The lines of its text, as they stand."""
    play: Story = field(compare=False)
    topology: Topology = field(default_factory=Topology)
    load: OpenLoop | None = field(default_factory=OpenLoop)
    suites: tuple[Suite, ...] = ("release",)
    planes: tuple[PlaneName, ...] = PLANES
    budget: float = 90.0
    """Seconds within which it must be over, the twins not counted."""
    twins: tuple[Twin, ...] = ()
    needs: tuple[str, ...] = ("local",)
    """What its target must offer: kinds of faults, or ``local`` for what only a pool of the suite's own has."""
    module: str = ""


def scenario(
    *,
    topology: Topology | None = None,
    load: OpenLoop | None = USUAL,
    suites: tuple[Suite, ...] = ("release",),
    planes: tuple[PlaneName, ...] = PLANES,
    budget: float = 90.0,
    twins: tuple[Twin, ...] = (),
    needs: tuple[str, ...] = ("local",),
) -> Callable[[Story], Story]:
    """Make a coroutine function ``async def promise(run: Run)`` a scenario, collected by pytest under its own name.

    ``load=None``: the scenario sends its own requests. The plane of ``topology`` is the one that the suite runs on.
    ``needs``: the kinds of its faults, where it can be played on any target that offers them.
    """

    def decorate(function: Story) -> Story:
        spec = Scenario(
            name=getattr(function, "__name__", "scenario"),
            says=" ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()),
            source=inspect.getsource(function),
            play=function,
            topology=topology or Topology(),
            load=load,
            suites=suites,
            planes=planes,
            budget=budget,
            twins=twins,
            needs=needs,
            module=function.__module__,
        )
        spec.topology.check()

        @functools.wraps(function)
        async def played(run: Run) -> None:
            __tracebackhide__ = True
            await run.play()

        # `__test__` is how pytest takes a function whose name does not begin with `test`
        played.__dict__.update(scenario=spec, __test__=True)
        return played

    return decorate


def scenario_of(function: Any) -> Scenario | None:
    """The scenario behind a decorated function; None for any other thing."""
    found = getattr(function, "__dict__", {}).get("scenario")
    return found if isinstance(found, Scenario) else None
