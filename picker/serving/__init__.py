"""The gateway's side.

Here: one ext_proc stream as a state machine without input or output (`exchange`), the transports under it
(`native` over `http2`, and `grpcio_ports`), gRPC health, TLS, and the access log service (`accesslog`). What they ask
of the rest of the picker stands in `seam`.

Not here: what a body means (`picker.requests`), which worker to take (`picker.picking`).
"""
