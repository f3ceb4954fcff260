"""
The bridge: runs beside one engine, turns its ZMQ events into small clean events on NATS, and answers for
the whole state.
"""
