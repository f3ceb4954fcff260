"""The life of a booking. Pure: server time comes in as milliseconds, outcomes and changes come out.

This is the model that every backend is compared with. A booking is active, draining or gone; one that is gone leaves a
tombstone. Who may do what is decided by terms and operation numbers, never by the order of arrival:

* a proven end is final in any term, from any replica, even before its book;
* the owner's operations carry the term and rise in number inside it; book, move, drain and reclaim begin a new term;
* an owner's silence turns all its active bookings draining in one change: not they are written, but its lapse is;
* a superseded booking is never reclaimed nor adopted, only prolonged.

Here: what is kept (`entries`, `register`), how a booking comes to stand (`placing`), what its owner may do (`owned`),
how it ends (`ending`), and the operations made of these (`ledger`). The scripts of the Redis plane have the same parts.
"""

from __future__ import annotations

from stateplane.ledger.entries import LedgerState
from stateplane.ledger.ledger import Ledger

__all__ = ["Ledger", "LedgerState"]
