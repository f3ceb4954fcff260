"""Where each model's token ids come from: `PICKER_TOKENIZERS`, read."""

from __future__ import annotations

from pathlib import Path

from yarl import URL

ANY = "*"
"""Stands for every model that is not named."""


def parse_tokenizers(text: str) -> dict[str, Path | URL]:
    """
    ``MODEL=DIR`` and ``MODEL=http://host:port`` pairs separated by commas, as in `PICKER_TOKENIZERS`.

    Raises:
        ValueError: says which pair is wrong and what is allowed.

    """
    pairs: dict[str, Path | URL] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        model, sign, place = (word.strip() for word in pair.partition("="))
        if not sign or not model or not place:
            raise ValueError(
                f"{pair!r} is no MODEL=DIR or MODEL=URL pair; pairs are separated by commas, '*' is any other model"
            )
        if model in pairs:
            raise ValueError(f"model {model!r} is named twice; one directory or engine serves a model")
        pairs[model] = _url(model, place) if "://" in place else Path(place)
    return pairs


def _url(model: str, text: str) -> URL:
    try:
        url = URL(text)
        usable = url.scheme in {"http", "https"} and bool(url.host) and url.port is not None
    except ValueError:
        usable = False
    if not usable:
        shown = "what is given" if "@" in text else repr(text[:200])
        raise ValueError(f"model {model!r}: {shown} is no engine's address; http://host:port is")
    if url.user is not None or url.password is not None or url.query_string or url.fragment:
        raise ValueError(f"model {model!r}: an engine's address holds no user, password, query or fragment")
    return url
