"""Files that a command writes at its end: looked at before its work begins."""

from __future__ import annotations

import os
from pathlib import Path

import click


def in_a_folder(option: str, file: Path | None) -> None:
    """Refuse a file that could not be written, before minutes are spent on what should stand in it.

    Raises:
        BadParameter: its folder is missing or must not be written; the text names both.
    """
    if file is None:
        return
    folder = file.absolute().parent
    if not folder.is_dir():
        raise click.BadParameter(f"the folder {folder} does not exist", param_hint=option)
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"the folder {folder} must not be written", param_hint=option)
