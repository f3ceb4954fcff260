"""`picker check`: probes a deployment end to end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from discovery.address import AddressError
from discovery.source import DiscoveryError
from picker import logs
from picker.check.extproc import Security
from picker.check.places import Found, find, from_ports
from picker.check.rows import as_json, exit_status, table
from picker.check.run import Plan, until_well
from picker.neighbours import open_credentials
from picker.peers.counts import Counts
from picker.serving.modes import BodyMode
from picker.settings import Settings, SettingsError, load

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("check")
@click.option("--service", default="", help="DNS name of the Service that the gateway calls.")
@click.option(
    "--peer-service", default="", help="DNS name of the replicas' headless Service.  [PICKER_PEER_SERVICE]"
)
@click.option("--replicas", type=click.IntRange(min=1), help="How many replicas there should be at least.")
@click.option("--ports-file", type=_FILE, help="Check the local cluster of `picker up --ports-file FILE`.")
@click.option("--model", default="", help="Model that the checks' requests name. Empty: none.")
@click.option(
    "--plane", default="", help="URL of the plane, for a round trip of our own.  [PICKER_PLANE_URL]"
)
@click.option("--secret-file", type=_FILE, help="The replicas' shared secret.  [PICKER_PEERS_SECRET_FILE]")
@click.option("--tls/--no-tls", default=None, help="Whether ext_proc is served over TLS.  [PICKER_TLS]")
@click.option(
    "--tls-ca", type=_FILE, help="Authorities that sign the replicas' certificate. None: any is taken."
)
@click.option("--tls-certificate", type=_FILE, help="Certificate that is shown, as a gateway's.")
@click.option("--tls-key", type=_FILE, help="Its private key.")
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 60),
    help="Seconds a probe may take.",
)
@click.option(
    "--wait", default=0.0, type=click.FloatRange(0, 3600), help="Seconds to try again while something fails."
)
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def command(**options: Any) -> None:
    """Probe a deployment from outside and say of each promise whether it is kept.

    Without options the PICKER_* environment says where the replicas are, as it does for `picker serve`.

    Exit status: 0 nothing failed, 1 a check failed, 2 wrong usage or settings.
    """
    # before anything is read: what is printed is the rows alone
    logs.configure("error", "text")
    try:
        plan, finding = _planned(options)
        rows = asyncio.run(until_well(finding, plan, wait=options["wait"]))
    except (SettingsError, DiscoveryError, AddressError) as error:
        for line in str(error).splitlines():
            click.echo(line, err=True)
        sys.exit(2)
    if options["as_document"]:
        click.echo(json.dumps(as_json(rows), indent=2))
    else:
        for line in table(rows):
            click.echo(line)
    sys.exit(exit_status(rows))


def _planned(options: dict[str, Any]) -> tuple[Plan, Callable[[], Awaitable[Found]]]:
    secret_file = {} if options["secret_file"] is None else {"peers_secret_file": options["secret_file"]}
    settings = load(**secret_file)
    page = _page(options["ports_file"])
    if page is not None and not secret_file and isinstance(page.get("peers_secret_file"), str):
        secret_file = {"peers_secret_file": Path(page["peers_secret_file"])}
        settings = load(pool_namespace="local", pool_name="demo", **secret_file)
    security, unable = _security(settings, options)
    credentials = open_credentials(settings.peers, Counts())
    if settings.peers.peers_secret_file is not None and credentials.locked:
        unable |= {"status": credentials.fault}
    plan = Plan(
        settings,
        credentials,
        security,
        replicas=options["replicas"] or (len(page["replicas"]) if page is not None else None),
        model=options["model"] or (str(page.get("model", "")) if page is not None else ""),
        plane_url=options["plane"] or _plane_url(page) or settings.plane.plane_url.get_secret_value(),
        seconds=options["timeout"],
        mode=BodyMode[settings.serving.extproc_mode.upper()]
        if settings.serving.extproc_mode
        else BodyMode.BUFFERED,
        why_not=unable,
    )
    if page is not None:
        found = from_ports(page)

        async def known() -> Found:
            return found

        return plan, known

    async def looked_up() -> Found:
        return await find(
            settings,
            service=options["service"],
            peer_service=options["peer_service"],
            seconds=options["timeout"],
        )

    return plan, looked_up


def _page(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        page = json.loads(file.read_text())
        from_ports(page)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--ports-file") from None
    return dict(page)


def _plane_url(page: dict[str, Any] | None) -> str:
    plane = (page or {}).get("plane")
    return str(plane.get("url", "")) if isinstance(plane, dict) else ""


def _security(settings: Settings, options: dict[str, Any]) -> tuple[Security, dict[str, str]]:
    """How the ext_proc port is reached, and why it cannot be, where it cannot."""
    serving = settings.serving
    certificate, key = options["tls_certificate"], options["tls_key"]
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-certificate and --tls-key go together")
    tls = serving.tls != "off" if options["tls"] is None else options["tls"]
    security = Security(tls, certificate, key, options["tls_ca"])
    if not tls:
        return replace(security, certificate=None, key=None), {}
    if serving.tls_client_ca_file is not None and certificate is None:
        return security, {"pick": "the replicas ask for a gateway's certificate, and none was given"}
    return security, {}
