"""What the state plane's operations cost beside the bare server's cheapest exchange, on the same connection.

`calls`: latency, client CPU and server CPU of each operation; `upkeep`: heartbeats with few and many bookings, and the
reaper's slices; `run`: the whole, with its budgets; `page`: its table.
"""
