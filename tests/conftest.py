"""What every test keeps."""

from __future__ import annotations

from hypothesis import settings

# how long an example takes is the machine's business
settings.register_profile("all", deadline=None)
settings.load_profile("all")
