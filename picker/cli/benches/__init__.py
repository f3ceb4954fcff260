"""One module a bench: its flags, and its numbers as tables for people or JSON for machines.

Each has a click command named `command`; `picker.cli.bench` loads it by name.
"""
