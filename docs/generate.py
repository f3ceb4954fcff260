"""Writes the generated documents; with ``--check`` says which of them differ and exits 1."""

from __future__ import annotations

import sys
from pathlib import Path

from picker.bench.pages import pages
from picker.settings.table import markdown, short_markdown

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from chaos.errors import page as booking_errors  # noqa: E402 - found from the root only
from chaos.gate import page as gate  # noqa: E402 - found from the root only
from chaos.selftest_page import page as selftest  # noqa: E402 - found from the root only
from tests.unit.serving.rows.page import page as ext_proc  # noqa: E402 - tests are found from the root only

HEADER = """# Settings

Everything is read from the environment once, at the start. Durations are plain seconds. A `PICKER_*` name that is not
in this list stops the start, with the nearest known name. This page is made from the settings' models by `make docs`.

"""


README = DOCS.parent / "README.md"
BEGIN, END = "<!-- settings: made by `make docs` -->\n", "<!-- end of settings -->\n"


def readme() -> str:
    """The README with its table of settings made anew."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{short_markdown()}{END}{after}"


def documents() -> dict[Path, str]:
    """Each generated document and what it should hold."""
    results = DOCS.parent / "benchmarks" / "results"
    measured = pages(results)
    if (results / "chaos-errors.json").exists():
        measured["chaos-errors.md"] = booking_errors(results / "chaos-errors.json")
    if (results / "chaos-release.json").exists():
        measured["chaos-release.md"] = gate(results / "chaos-release.json")
    if (results / "chaos-selftest.json").exists():
        measured["chaos-selftest.md"] = selftest(results / "chaos-selftest.json")
    made = {DOCS / "settings.md": HEADER + markdown(), DOCS / "ext-proc.md": ext_proc(), README: readme()}
    return made | {DOCS / name: text for name, text in measured.items()}


def main() -> int:
    """Write, or compare."""
    check = "--check" in sys.argv[1:]
    stale = []
    for path, text in documents().items():
        if check and (not path.exists() or path.read_text() != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text)
    for name in stale:
        sys.stderr.write(f"{name} is not what the code says: run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
