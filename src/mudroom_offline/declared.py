"""What a manifest declares, as values."""

from __future__ import annotations

from msgspec import Struct, field


class Dependency(Struct, frozen=True):
    """A name and its version constraint ("" if there is none); `dev` when it is not needed to run."""

    name: str
    version: str = ""
    dev: bool = False


class Manifest(Struct):
    """What one manifest says."""

    path: str
    project: str = ""
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    tools: str = ""
    """Names of configured tools and test commands, as one text to search in."""
