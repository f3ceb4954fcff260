"""What the replica's end of the event path counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from picker.events import cursor as cursors
from picker.events import link as links


@dataclass(slots=True)
class Counts:
    """What the subscriber met."""

    messages: int = 0
    malformed: int = 0
    """Messages that are no event: not msgpack, wrong shape, out of bounds."""
    unknown_schema: int = 0
    unwatched: int = 0
    """Messages for workers that are not watched; ignored."""
    queue_dropped: int = 0
    """Messages dropped, the oldest first, because they came faster than they could be applied."""
    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    asks: int = 0
    answers: int = 0
    snapshots: int = 0
    unanswered: int = 0
    silences: int = 0
    """Times that a worker was sent requests for a while and told nothing of its cache."""
    listener_errors: int = 0
    stream: cursors.Counts = field(default_factory=cursors.Counts)
    nats: links.Counts = field(default_factory=links.Counts)
