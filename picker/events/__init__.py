"""
KV events: what engines say of their caches, turned into the index.

Here: the records on NATS (`records`, `subjects`), the connection (`link`), the replica's subscriber with gaps and
recovery (`subscriber`, `cursor`, `recovery`), and `bridge`, which runs beside an engine.
Not here: the index itself (`picker.core.index`).
"""
