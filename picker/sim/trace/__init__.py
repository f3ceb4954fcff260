"""
A sample of a published conversation trace, and its rows as chat requests.

Here: `conversation.jsonl` (whole conversations, rows unchanged), `NOTICE.md` (source and licence), `choose` (how the
sample was taken), `trace` (rows into messages and arrivals).
"""

from picker.sim.trace.trace import SAMPLE, Row, arrivals, messages, sample

__all__ = ["SAMPLE", "Row", "arrivals", "messages", "sample"]
