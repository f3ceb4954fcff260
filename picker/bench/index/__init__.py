"""The prefix index by itself: hash, growth, memory, apply, clear, match, and an oracle in the same run.

Here: what it is measured on (`population`), the measurements (`upkeep`, `lookup`), the check against the naive
definition (`oracle`), another index on the same prompts (`dynamo`, only where it is installed), all in order (`run`).

Not here: anything that the index does in a running replica (events, recovery, sweeps by the clock).
"""
