"""Says what is installed: an SBOM (CycloneDX 1.6) and the licences, with their texts.

python image/bill.py FOLDER --lock image/requirements.lock

Writes ``sbom.cdx.json`` and ``LICENCES.txt`` into FOLDER, about the environment that runs it. Needs the standard
library alone. A package whose licence is not among those that may be handed on ends it with exit 1 and its name.
"""  # noqa: INP001 - a program, not a module

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

OURS = "replicated-endpoint-picker"
LEFT_OUT = frozenset({"pip", "setuptools", "wheel"})
"""Gone before the image is done."""

ALLOWED = re.compile(
    r"\b(Apache|MIT|BSD|0BSD|ISC|PSF|Python[- ]Software[- ]Foundation|Python-2\.0|CNRI-Python|MPL|Mozilla Public|"
    r"Unlicense|ZPL|Zope|CC0|Zlib|BSL-1\.0)",
    re.IGNORECASE,
)
FORBIDDEN = re.compile(r"\b(AGPL|GPL|SSPL|BUSL)(?!-compatible)", re.IGNORECASE)
TEXTS = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)


class LicenceError(Exception):
    """A licence that nobody has looked at."""


def normal(name: str) -> str:
    """A package's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> list[Distribution]:
    """The packages of this environment, by name."""
    found = {normal(each.metadata["Name"]): each for each in distributions()}
    return [found[name] for name in sorted(found) if name not in LEFT_OUT]


def licence(package: Distribution) -> str:
    """The licence as the package itself says it: an SPDX expression where it has one."""
    told = package.metadata
    if "License-Expression" in told:
        return str(told["License-Expression"])
    kinds = [
        line.rpartition(" :: ")[2]
        for line in told.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    kinds = [kind for kind in kinds if kind != "OSI Approved"]
    if kinds:
        return " OR ".join(kinds)
    text = str(told["License"]).strip() if "License" in told else ""
    return text.splitlines()[0][:80] if text else ""


def judged(package: Distribution) -> str:
    """The licence.

    Raises:
        LicenceError: it is none that may be handed on, or the package says none.
    """
    said = licence(package)
    # of several a reader may choose one
    choices = [choice for choice in re.split(r"\bOR\b", said) if not FORBIDDEN.search(choice)]
    if not any(ALLOWED.search(choice) for choice in choices):
        name = package.metadata["Name"]
        raise LicenceError(
            f"{name} {package.version}: licence {said or 'not told'!r}; look at it, then name it in {__file__}"
        )
    return said


def hashes(lock: Path) -> Mapping[str, list[str]]:
    """The archives' SHA-256 that the lock allows, by package."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lock.read_text().splitlines():
        begin = re.match(r"([A-Za-z0-9._-]+)(\[[^\]]*\])?==", line)
        if begin:
            name = normal(begin[1])
        found.setdefault(name, []).extend(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def texts(package: Distribution) -> Iterator[str]:
    """The texts of its licences and notices."""
    for file in package.files or ():
        if TEXTS.search(str(file)) and ".dist-info" in str(file):
            yield Path(str(package.locate_file(file))).read_text(errors="replace").strip()


def bill(packages: Sequence[Distribution], lock: Path) -> dict[str, Any]:
    """The SBOM: same packages, same bill."""
    allowed = hashes(lock)

    def component(package: Distribution) -> dict[str, Any]:
        name = normal(package.metadata["Name"])
        purl = f"pkg:pypi/{name}@{package.version}"
        known = [{"name": "sha256", "value": value} for value in sorted(allowed.get(name, []))]
        return {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": package.version,
            "purl": purl,
            "licenses": [{"license": {"name": judged(package)}}],
            # one archive of these was installed, which one depends on the platform
            "properties": known,
        }

    ours = next(each for each in packages if normal(each.metadata["Name"]) == OURS)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(ours) | {"type": "application"}},
        "components": [component(each) for each in packages if each is not ours],
    }


def licences(packages: Sequence[Distribution]) -> str:
    """Every package with its licence and the texts that come with it."""
    lines = []
    for each in packages:
        lines += [f"{each.metadata['Name']} {each.version}: {judged(each)}", "=" * 78]
        lines += [text + "\n" for text in texts(each)] or ["(no text comes with the package)\n"]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description="Says what is installed, and under which licences.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lock", type=Path, required=True)
    asked = parser.parse_args(arguments)
    packages = installed()
    try:
        made = {
            "sbom.cdx.json": json.dumps(bill(packages, asked.lock), indent=1) + "\n",
            "LICENCES.txt": licences(packages),
        }
    except LicenceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (asked.folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
