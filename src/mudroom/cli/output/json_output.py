"""Indented JSON on stdout, for the --json flag of commands."""

from __future__ import annotations

import json

import msgspec


def print_json(value: object) -> None:
    """Print a value that msgspec can encode as indented JSON, with characters as they are."""
    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2))
