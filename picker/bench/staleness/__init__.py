"""How late a replica's view hears of what another one booked, between real processes.

`window`: what one process does for a few seconds; `envelope`: how that grows with replicas and changes, and when to
read in batches instead of waiting for each change; `run`: the whole, with its budget; `page`: its tables.
"""
