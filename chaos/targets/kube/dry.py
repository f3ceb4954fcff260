"""What is found out of a release, and told, before anything is played on it: reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from chaos.injectors import Injection
from chaos.injectors.together import Together
from chaos.plan import plan
from chaos.scenario import Suite
from chaos.suites import scenarios
from chaos.targets.kube.brief import Brief
from chaos.targets.kube.faults import calls_of
from chaos.targets.kube.options import Options
from chaos.targets.kube.target import Kube


async def brief_of(options: Options) -> Brief:
    """Meet the release and say what can be played on it. Raises TargetError."""
    kube = Kube(options.absolute(), folder=Path())
    try:
        await kube.meet()
        return Brief(kube.options, kube.plane, kube.offers, kube.missing, kube.slack_seconds)
    finally:
        await kube.stop()


async def tell_plans(
    options: Options, suite: Suite, *, seed: int, keywords: str, say: Callable[[str], None]
) -> None:
    """Tell of each scenario of a suite every call that would change something, or why it is not played.

    Raises TargetError.
    """
    kube = Kube(options, folder=Path())
    try:
        await kube.meet()
        brief = Brief(kube.options, kube.plane, kube.offers, kube.missing, kube.slack_seconds)
        say(
            f"{kube.release.place}: {kube.release.chart}, image {kube.release.image}, Kubernetes {kube.version}"
        )
        for policy in await kube.hand.leftovers():
            say(f"first: delete networkpolicies {policy} (left behind by an earlier run)")
        for spec in scenarios(suite):
            if keywords and keywords not in spec.name:
                continue
            why = brief.lacking(spec.needs)
            if why:
                say(f"not here: {spec.name}: {why}")
                continue
            made = await plan(
                spec, seed=seed, plane=kube.plane, topology=kube.topology, names=list(kube.members.replicas),
                calls=lambda injection: _calls(kube, injection), words=kube.words,
            )  # fmt: skip
            say(f"{spec.name}, seed {seed}")
            further = [] if made.whole else ["further steps of its own: see `picker chaos show`"]
            for step in (*made.steps, *further):
                say(f"  - {step}" if not step.startswith(" ") else f"  {step}")
    finally:
        await kube.stop()


def _calls(kube: Kube, injection: Injection) -> tuple[Iterable[str], Iterable[str]]:
    parts = injection.parts if isinstance(injection, Together) else (injection,)
    both = [calls_of(each, kube) for each in parts]
    done, undone = [[call.words() for pair in both for call in pair[n]] for n in (0, 1)]
    return done, undone
