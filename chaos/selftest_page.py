"""The page of the documentation that says which mutants are caught, from the results that were kept."""

from __future__ import annotations

import json
from pathlib import Path

HEADER = """# Does the chaos suite notice?

`picker chaos selftest` breaks the replicas on purpose, in one way after the other, and plays a scenario with them. A
mutant is caught where the named invariant says *fail* on it and *pass* on the replicas as they are. The breaks get into
the replicas that the suite starts by a plug-in of its own (`sitecustomize.py` on their `PYTHONPATH`); nothing in the
product looks for it. The scenarios are those of `chaos/mutants/scenarios.py`, and some of the suites'.

"""
FOOTER = """
Made by `make docs` from `benchmarks/results/chaos-selftest.json`: the file `selftest.json` of

```
picker chaos selftest --report out-selftest/
```

## One more mutant
One entry in `chaos.mutants.MUTANTS`, and a function that breaks the product in the process in which it is called,
before the replica starts: `chaos.mutants.planting.exchange` exchanges a function, `exchange_lua` a line of a script of
the Redis plane. Both fail where the product no longer has what they exchange, so that a mutant cannot become harmless
in silence. On Redis the scripts are the replicas' own, on NATS every replica folds the log itself: whatever decides
there can be broken, and the entry says on which plane it is.
"""


def page(results: Path) -> str:
    """The page as Markdown. Raises OSError, ValueError, KeyError for a file that holds no results."""
    told = json.loads(results.read_text())
    lines = [
        f"Seed {told['seed']}: **{told['caught']} of {len(told['mutants'])} caught**, in {told['seconds']} s.\n",
        "| mutant | what is broken | plane | scenario | invariant | as it is | broken |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{each['mutant']}` | {each['breaks']} | {each['plane']} | `{each['scenario']}` | {each['invariant']} "
        f"| {each['original']}: {_cell(each['original_said'])} | {each['mutated']}: {_cell(each['mutated_said'])} |"
        for each in told["mutants"]
    ]
    return HEADER + "\n".join(lines) + "\n" + FOOTER


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
