"""The ``model`` of a form: audio and pictures come as ``multipart/form-data``, and nothing else of it is read."""

from __future__ import annotations

import re
from email.message import Message

from picker.requests.fields import MAX_NAME

WINDOW = 65_536
"""Fields are looked for in so many bytes at either end: the file, which may be long, lies between."""
MAX_FIELDS = 64
_NAMED = re.compile(rb'\bname="?model"?\s*(?:;|\r?\n|$)', re.IGNORECASE)


def model_of(content_type: str, body: bytes) -> str:
    """The form's ``model``; empty where it is not told in the first or last `WINDOW` bytes. Never raises."""
    boundary = _boundary(content_type)
    if not boundary:
        return ""
    for window in (body[:WINDOW], body[WINDOW:][-WINDOW:]):
        for part in window.split(b"--" + boundary, MAX_FIELDS)[1:]:
            head, gap, rest = part[:4096].partition(b"\r\n\r\n")
            if gap and _NAMED.search(head):
                value = rest.partition(b"\r\n")[0]
                return value.decode("utf-8", "replace") if 0 < len(value) <= MAX_NAME else ""
    return ""


def _boundary(content_type: str) -> bytes:
    """The boundary that a content type names; empty: none, or no form."""
    if not content_type.lower().startswith("multipart/form-data") or len(content_type) > 1024:
        return b""
    parsed = Message()
    try:
        parsed["content-type"] = content_type
        boundary = parsed.get_boundary("")
    except (ValueError, UnicodeError):
        return b""
    return boundary.encode("utf-8", "replace") if 0 < len(boundary) <= 200 else b""
