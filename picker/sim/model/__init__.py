"""
The demo model's tokenizer and chat template: small, our own, trained by `build`.

Here: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`. Not here: weights; the simulated engine makes up
its answers.
"""

from __future__ import annotations

from pathlib import Path

MODEL = "demo-8b"
"""The name under which the simulated engines serve it."""

DIRECTORY = Path(__file__).resolve().parent
"""Where the files stand, laid out as a model directory."""
