"""
KV events: what engines say of their caches, turned into the index.

Here: the records on NATS (`records`), the replica's subscriber with gaps and recovery (`subscriber`), and `bridge`, which runs beside an engine.
Not here: the index itself (`picker.core.index`).
"""
