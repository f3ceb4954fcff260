"""The cluster's network: a namespace of its own with a bridge, and one more for each pod, joined to it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

BRIDGE: Final = "br0"
NODE: Final = "10.244.0.1"
"""The bridge's own address: the API server, DNS and every node are there."""
PODS: Final = IPv4Network("10.244.0.0/16")
SERVICES: Final = IPv4Network("10.96.0.0/16")
NAMES: Final = Path("/run/netns")
PROGRAMS: Final = ("ip", "mount", "nsenter", "setpriv", "chroot", "sh")

_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000
_FIRST_POD = 16


class NetworkError(Exception):
    """What this machine refuses, and what it would need."""


def enter_new() -> None:
    """Move this thread, and whatever it starts from now on, into namespaces of its own that hold the cluster's bridge.

    Raises:
        NetworkError: a program is missing, or the rights to do this.

    """
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise NetworkError(f"a cluster needs {', '.join(missing)} on PATH (iproute2, util-linux, coreutils)")
    _check(_libc().unshare(_NEW_NETWORK | _NEW_MOUNTS), "a network namespace of one's own needs root")
    NAMES.mkdir(parents=True, exist_ok=True)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "netns", str(NAMES))
    run("ip", "link", "set", "lo", "up")
    # a bridge without an address of its own takes the lowest of its ports': whenever that pod went, every pod's packets
    # to the API server, DNS and all ClusterIPs would be lost until its neighbour entry is looked up anew
    run("ip", "link", "add", BRIDGE, "address", "02:00:0a:f4:00:01", "type", "bridge")
    run("ip", "address", "add", f"{NODE}/{PODS.prefixlen}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    # every ClusterIP is an address of ours
    run("ip", "route", "add", "local", str(SERVICES), "dev", "lo")


def join(pid: int) -> None:
    """Move this thread, and whatever it starts from now on, into the network of a process.

    Raises:
        NetworkError: no such process, or no right to do this.

    """
    try:
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except OSError as error:
        raise NetworkError(f"process {pid} of the cluster is gone: {error}") from error
    try:
        back(descriptor)
    finally:
        os.close(descriptor)


def back(descriptor: int) -> None:
    """Move this thread into the network of an open descriptor, as `/proc/thread-self/ns/net` gives one.

    Raises:
        NetworkError: no right to do this.

    """
    _check(_libc().setns(descriptor, _NEW_NETWORK), "another network cannot be entered")


def addresses() -> Iterator[str]:
    """Addresses for pods, each given once only: a new pod is never taken for one that is gone."""
    for number in range(_FIRST_POD, PODS.num_addresses - 1):
        yield str(PODS[number])


async def add_pod(name: str, address: str) -> None:
    """A namespace of that name, with that address on the bridge."""
    outside = f"v{name}"
    await arun("ip", "netns", "add", name)
    await arun("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
    await arun("ip", "link", "set", outside, "master", BRIDGE, "up")
    inside = "\n".join((
        f"address add {address}/{PODS.prefixlen} dev eth0",
        "link set lo up",
        "link set eth0 up",
        f"route add default via {NODE}",
    ))  # fmt: skip
    await arun("ip", "-n", name, "-batch", "-", given=inside)


async def drop_pod(name: str) -> None:
    """Take the namespace away; what is gone already is fine."""
    process = await asyncio.create_subprocess_exec(
        "ip", "netns", "delete", name, stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()


def run(*command: str) -> None:
    """Run a command to its end; raises NetworkError with its words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise NetworkError(f"`{' '.join(command)}`: {done.stderr.strip()}")


async def arun(*command: str, given: str = "") -> None:
    """`run`, beside other work."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    _, words = await process.communicate(given.encode())
    if process.returncode:
        raise NetworkError(f"`{' '.join(command)}`: {words.decode().strip()}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, meaning: str) -> None:
    if result != 0:
        raise NetworkError(f"{meaning}: {os.strerror(ctypes.get_errno())}")
