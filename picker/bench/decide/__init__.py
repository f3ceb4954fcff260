"""
What one decision costs a replica: its processor time, its latency, its memory; beside other servers of ext_proc too.

Here: what a gateway says on one stream (`script`), a gateway that drives a server with it (`gateway`, `drive`),
engines that answer scrapes (`engines`), KV events at a fixed rate (`voices`), a real replica with all that it needs
(`stand`), and what is measured with them: `rows`, `events`, `held`, `filtering`, `parts`; `run` does all of it, `page`
shows it.
"""
