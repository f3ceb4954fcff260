"""How late a replica's view hears of what another one booked, between real processes.

`window`: what one process does for a few seconds; `envelope`: how that grows with replicas and changes, and when reading
in batches beats waiting for each change; `run`: the whole, with its budget; `page`: its tables.
"""
