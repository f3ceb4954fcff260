"""What the picker's decisions are worth: published traces through simulated engines, in virtual time.

Here: the trace (`trace`), a clock that jumps (`world`), engines with their bridges (`fleet`), the product's own
decision code as replicas that share bookings late (`replica`, `plane`), what it is compared with (`policies`), all runs
(`run`).

Not here: sockets, processes, sleeping, and any decision code of its own for the product: index, view, load, price and
choice are those of a running replica.
"""
