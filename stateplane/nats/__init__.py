"""The plane on NATS JetStream: one log of commands per pool, folded by every replica with the ledger's own rules.

A JetStream stream gives every message a number and the server's time. So the log decides the order of all operations,
and the ledger, which is pure, decides the same everywhere: terms, operation numbers, attempts and lapses are judged
where each command stands in the log, however many replicas act at the same moment. A heartbeat is a command like any
other: what lapses or goes at its deadline does so at one place of the log. Nothing is read before it is written, and
no two records have to change together.

Two streams per pool:

* ``PICKER_PLANE_<pool>``: the log, bounded, the oldest go first;
* the key-value bucket ``picker-plane-<pool>``: the ledger as it was at one place of the log, so that a replica which
  comes later need not read all. The eldest member writes it; ``head`` changes by compare-and-set on its revision.

Here: commands and checkpoints as they are stored (`codec`), the fold (`fold`), the connection and what it may raise
(`address`, `wire`, `translation`), following the log (`follower`, `attaching`, `life`), writing to it (`log`),
checkpoints (`checkpoints`), the seam's calls (`plane`).

A lone server that restarted may have lost what it had acknowledged, so that is a new epoch: owners book again what is
live; ends and leases stay where the pool is kept on file. In a cluster the restart of one server is no event;
if the log lost its tail all the same, whoever had folded that tail finds out and begins an epoch.

Not promised on NATS: a choice in one step (no ``select``); that replicas of different versions fold alike unless the
schema number says so: a change of the ledger's rules is a change of the schema.
"""

from __future__ import annotations

from pathlib import Path

from stateplane.booking import Owner, Rules
from stateplane.nats.plane import NatsPlane


def open_url(
    url: str,
    *,
    pool: str,
    owner: Owner,
    rules: Rules,
    timeout: float,
    connect: float,
    password_file: Path | None,
) -> NatsPlane:
    """``nats://[user[:password]@]host[:port][,host[:port]]/?storage=file|memory&replicas=1``; ``tls://`` over TLS.

    ``credentials=FILE`` names a credentials file (or ``password_file`` is one), ``ca``, ``certificate`` and ``key``
    are files for TLS. Without ``storage`` or ``replicas`` a new pool is kept on file, once, and an old one as it is.
    """
    return NatsPlane(
        url,
        pool=pool,
        owner=owner,
        rules=rules,
        timeout=timeout,
        connect=connect,
        password_file=password_file,
    )


__all__ = ["NatsPlane", "open_url"]
