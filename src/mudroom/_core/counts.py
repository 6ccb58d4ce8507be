"""Numbers with their nouns, for texts."""

from __future__ import annotations


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun: "1 tool use", "1,200 tool uses"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
