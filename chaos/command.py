"""`picker chaos run|list|show|selftest|errors|gate`."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import click

from chaos.plan import plan
from chaos.scenario import SUITES, Scenario, Suite
from chaos.suites import scenario_named, scenarios
from chaos.targets import TargetError, check_target
from chaos.targets.kube.brief import Brief
from chaos.targets.kube.options import NOTICE_SECONDS, REACHES, Options, OptionsError, Reach
from chaos.targets.local import OFFERS
from chaos.topology import PLANES, PlaneName

CONFIGURATION = Path(__file__).with_name("pytest.ini")
NEEDED = ("pytest", "pytest_asyncio", "pytest_timeout")


@click.group("chaos", short_help="The release gate.")
def command() -> None:
    """Break a cluster on purpose and judge what it did."""


@command.command("run", short_help="Play the scenarios of a suite.")
@click.option("--suite", type=click.Choice(SUITES), default="smoke", show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Arrivals and choices follow."
)
@click.option(
    "--plane", "planes", type=click.Choice(PLANES), multiple=True, help="May be given twice. Default: both."
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("chaos-report"),
    show_default=True,
    help="New folder for index.html, verdict.json, junit.xml, histories, logs.",
)
@click.option("-k", "keywords", default="", help="Only scenarios that match, as pytest's -k.")
@click.option(
    "--target", default="local", show_default=True, help="Where: local, or kube, a release that runs."
)
@click.option(
    "--kubeconfig",
    default="",
    help="kube: file to reach the API server by. Default: the usual ones, or the pod's own.",
)
@click.option("--context", default="", help="kube: context of that file. Default: its current one.")
@click.option("--namespace", default="", help="kube: of the release.")
@click.option("--release", default="", help="kube: name of the helm release. Nothing else is touched.")
@click.option("--gateway", default="", help="kube: URL that requests are sent to.")
@click.option("--model", default="", help="kube: model that requests name. Default: the simulated engines'.")
@click.option("--admin-token-file", default="", help="kube: file with the token of the replicas' pages.")
@click.option(
    "--reach",
    type=click.Choice(REACHES),
    default="auto",
    show_default=True,
    help="kube: how pods are dialled.",
)
@click.option(
    "--gateway-notices",
    type=click.FloatRange(0, 3),
    default=NOTICE_SECONDS,
    show_default=True,
    help="kube: seconds in which the gateway learns that a replica is gone; picks sent there meanwhile may be lost.",
)
@click.option("--dry-run", is_flag=True, help="List what would be done, and touch nothing.")
@click.option(
    "--for",
    "soak_seconds",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds that each scenario of the suite soak runs.",
)
@click.option(
    "--previous",
    type=click.Path(exists=True, path_type=Path),
    help="An earlier build to mix in: a picker executable, a virtual environment, or a checkout.",
)
@click.option("-x", "--exit-first", is_flag=True, help="Stop after the first scenario that does not pass.")
def run(
    suite: Suite, seed: int, planes: tuple[PlaneName, ...], report: Path, keywords: str, target: str, dry_run: bool,
    soak_seconds: float, previous: Path | None, exit_first: bool, kubeconfig: str, context: str, namespace: str,
    release: str, gateway: str, model: str, admin_token_file: str, reach: Reach, gateway_notices: float,
) -> None:  # fmt: skip
    """Play every scenario of a suite on each plane, judge it, and write a report.

    Exit status: 0 everything passed, 1 something failed or is unknown, 2 nothing was run.
    """
    try:
        check_target(target)
    except TargetError as error:
        raise click.UsageError(f"--target: {error}") from None
    options = Options(
        namespace, release, gateway, kubeconfig, context, admin_token_file, reach, model, gateway_notices
    )
    if target == "local" and options != Options():
        given = [word for word in options.words()[2:] if word.startswith("--")]
        raise click.UsageError(f"{', '.join(given)}: for --target kube only")
    if target == "kube" and previous is not None:
        raise click.UsageError("--previous: a release has the builds that it has; for --target local only")
    if target == "kube":
        _on_release(options, suite, seed, planes, report, keywords, dry_run, soak_seconds, exit_first)
        return
    if previous is not None:
        _mix_in(previous)
    if dry_run:
        _tell_plans(suite, seed, planes or PLANES, keywords)
        return
    _empty(report)
    _needs_pytest()
    arguments = pytest_arguments(suite=suite, seed=seed, planes=planes, report=report, keywords=keywords)
    arguments += ["--chaos-soak-seconds", str(soak_seconds if suite == "soak" else 0)]
    sys.exit(_play([*arguments, *(["-x"] if exit_first else [])]))


def _mix_in(path: Path) -> None:
    from chaos.injectors.previous import BuildError, mix_in

    try:
        click.echo(f"mixed in where versions stand side by side: {mix_in(path).told}")
    except BuildError as error:
        raise click.UsageError(f"--previous: {error}") from None


def _on_release(
    options: Options, suite: Suite, seed: int, planes: tuple[PlaneName, ...], report: Path, keywords: str,
    dry_run: bool, soak_seconds: float, exit_first: bool,
) -> None:  # fmt: skip
    """Play on a release in Kubernetes, on the plane that it has."""
    from chaos.targets.kube.dry import brief_of, tell_plans

    if len(planes) > 1:
        raise click.UsageError("--plane: a release has one plane; name it only where its URL is in a Secret")
    try:
        options.check()
        if dry_run:
            asyncio.run(tell_plans(options, suite, seed=seed, keywords=keywords, say=click.echo))
            return
        _empty(report)
        _needs_pytest()
        brief = asyncio.run(brief_of(options))
    except (OptionsError, OSError) as error:
        raise click.UsageError(f"--target kube: {error}") from None
    except TargetError as error:
        raise click.ClickException(str(error)) from None
    plane = planes or (brief.plane,)
    arguments = pytest_arguments(
        suite=suite, seed=seed, planes=plane, report=report, keywords=keywords, brief=brief
    )
    arguments += ["--chaos-soak-seconds", str(soak_seconds if suite == "soak" else 0)]
    # whoever ends a Job sends SIGTERM: then as well everything is to be healed
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(_play([*arguments, *(["-x"] if exit_first else [])]))


def pytest_arguments(
    *, suite: str, seed: int, planes: tuple[str, ...], report: Path, keywords: str = "", mutant: str = "",
    brief: Brief | None = None,
) -> list[str]:  # fmt: skip
    """What pytest is called with."""
    chosen = [part for plane in planes for part in ("--chaos-plane", plane)]
    return [
        "-c", str(CONFIGURATION), "--rootdir", str(CONFIGURATION.parent), "--pyargs", "chaos.scenarios",
        "--chaos-suite", suite, "--chaos-seed", str(seed), "--chaos-report", str(report), *chosen,
        f"--junitxml={report / 'junit.xml'}", "-o", "junit_family=xunit2", "--tb=short", "-q",
        *(["-k", keywords] if keywords else []),
        *(["--chaos-mutant", mutant] if mutant else []),
        *(["--chaos-release", brief.to_json()] if brief is not None else []),
    ]  # fmt: skip


def _play(arguments: list[str]) -> int:
    import pytest

    code = pytest.main(arguments)
    return {pytest.ExitCode.OK: 0, pytest.ExitCode.TESTS_FAILED: 1, pytest.ExitCode.INTERRUPTED: 1}.get(
        pytest.ExitCode(code), 2
    )


def _needs_pytest() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the suite is played by pytest, and {', '.join(missing)} is not installed: "
            "pip install 'replicated-endpoint-picker[chaos]'"
        )


def _empty(report: Path) -> None:
    if report.exists() and any(report.iterdir()):
        raise click.UsageError(
            f"--report {report}: the folder is not empty; reports are not mixed, name another"
        )


def _tell_plans(suite: Suite, seed: int, planes: tuple[PlaneName, ...], keywords: str) -> None:
    for plane in planes:
        for spec in scenarios(suite):
            if plane not in spec.planes or (keywords and keywords not in spec.name):
                continue
            if not {*spec.needs} <= OFFERS:
                continue
            made = asyncio.run(plan(spec, seed=seed, plane=plane))
            click.echo(f"{spec.name} on {plane}, seed {seed}")
            click.echo(f"  on 127.0.0.1 alone: {made.topology.words()}")
            further = [] if made.whole else ["further steps of its own: see `picker chaos show`"]
            for step in (*made.steps, *further):
                click.echo(f"  - {step}")
            click.echo("")


@command.command("list", short_help="Every scenario in one line.")
@click.option("--suite", type=click.Choice(SUITES), help="Only those of one suite.")
def list_(suite: Suite | None) -> None:
    """Every scenario: its suites, its budget, and what it promises."""
    for spec in scenarios(suite):
        planes = "" if set(spec.planes) == set(get_args(PlaneName)) else f" ({', '.join(spec.planes)} only)"
        planes += "" if {*spec.needs} <= OFFERS else " (kube only)"
        planes += "" if "local" in spec.needs or planes else " (local, kube)"
        click.echo(f"{spec.name}{planes}  [{' '.join(spec.suites)}, {spec.budget:g} s]\n    {spec.says}")


@command.command("show", short_help="One scenario: what it promises, and its text.")
@click.argument("name")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--plane", type=click.Choice(PLANES), default="redis", show_default=True)
def show(name: str, seed: int, plane: PlaneName) -> None:
    """One scenario: what it promises, what it does under a seed, what it demands, its text, how to play it."""
    try:
        spec = scenario_named(name)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    made = asyncio.run(plan(spec, seed=seed, plane=plane))
    click.echo(f"{spec.name}\n  {spec.says}\n")
    click.echo(
        f"topology  {made.topology.words()}\nsuites    {' '.join(spec.suites)}\nbudget    {spec.budget:g} s\n"
    )
    for line in (*made.steps, *made.demands):
        click.echo(f"- {line}")
    click.echo(f"\n{spec.source}\nplay it: {rerun(spec, seed=seed, plane=plane)}")


def rerun(spec: Scenario, *, seed: int, plane: str) -> str:
    """The command that plays one scenario again."""
    suite = spec.suites[0] if spec.suites else "release"
    words = [
        "picker",
        "chaos",
        "run",
        "--suite",
        suite,
        "--seed",
        str(seed),
        "--plane",
        plane,
        "-k",
        spec.name,
    ]
    return shlex.join([*words, "--report", f"out-{spec.name}"])


@command.command("selftest", short_help="Break the replicas and see whether the suite notices.")
@click.option("-k", "keywords", default="", help="Only mutants whose name contains this.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("chaos-selftest"),
    show_default=True,
)
def selftest(keywords: str, seed: int, report: Path) -> None:
    """Break the replicas on purpose, one way after the other; each named invariant must then say *fail*.

    The same scenarios must pass on the replicas as they are. Exit status 0: every mutant was caught.
    """
    from chaos.selftest import selftest as test

    _empty(report)
    _needs_pytest()
    sys.exit(test(keywords=keywords, seed=seed, folder=report, say=click.echo))


def _of_reports(wanted: Callable[..., None]) -> Callable[..., None]:
    """A command on the reports of runs, whose numbers can be kept."""
    folder, file = (
        click.Path(exists=True, file_okay=False, path_type=Path),
        click.Path(dir_okay=False, path_type=Path),
    )
    of = click.argument("reports", nargs=-1, required=True, type=folder)
    return of(click.option("--json", "kept", type=file, help="Keep the numbers there.")(wanted))


@command.command("errors", short_help="What deaths and retries cost in booking error, as a table.")
@_of_reports
def errors(reports: tuple[Path, ...], kept: Path | None) -> None:
    """Booking error of a replica's death and of retries, beside other policies, from the reports of `run`."""
    from chaos.errors import rows_of, table

    try:
        rows = rows_of(reports)
    except (OSError, ValueError, KeyError) as error:
        raise click.UsageError(f"no report can be read there: {error}") from None
    if not rows:
        raise click.UsageError("no scenario booking_error_of_... was played in these reports")
    click.echo(table(rows), nl=False)
    if kept is not None:
        kept.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


@command.command("gate", short_help="All runs of a suite in one table.")
@_of_reports
def gate(reports: tuple[Path, ...], kept: Path | None) -> None:
    """Every run and every scenario of some reports of `run`: what passed, how long it took, what came near a bound.

    Exit status: 0 every run passed, 1 one did not.
    """
    from chaos.gate import runs_of, table

    try:
        runs = runs_of(reports)
    except (OSError, ValueError, KeyError) as error:
        raise click.UsageError(f"no report can be read there: {error}") from None
    click.echo(table(runs), nl=False)
    if kept is not None:
        kept.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(run["verdict"] != "pass" for run in runs))
