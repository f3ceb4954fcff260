"""The state plane: bookings of requests on workers, shared by all replicas of a pool.

Here: what a booking is and how it lives (`booking`, `ledger`: pure), the seam and its promises (`plane`), the backends
that keep them (`memory`, `redis`, found by name in `backends`), a replica's local copy (`view`), a replica's hand in
the plane (`desk`), and the contract that any backend can be held to (`testing`).

Not here: which worker a request should get. The plane is handed the price's inputs as numbers.
"""
