"""`picker chaos`: the release gate. It lives in a package above the picker, and is found by name."""

from __future__ import annotations

from importlib import import_module

import click

command: click.Command = import_module("chaos.command").command
