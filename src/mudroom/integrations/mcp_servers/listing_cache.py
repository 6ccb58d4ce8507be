"""Cache on disk of the tools that servers list: names and schemas are known without a start."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from ..._core.json_values import get_decoder
from ..._platform.private_files import make_private_folder, replace_private_file
from .listing import Listing
from .spec import ServerSpec


class CachedListing(Struct, frozen=True):
    """A listing, and the tools that the server changed and no user has approved since."""

    listing: Listing
    changed: tuple[str, ...] = ()


class ListingCache:
    """Cache of listings, one file for each configuration of a server."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def load(self, spec: ServerSpec) -> CachedListing | None:
        """Return what the server listed last, None if that is not known."""
        try:
            return get_decoder(CachedListing).decode(self._locate(spec).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def store(self, spec: ServerSpec, cached: CachedListing) -> None:
        """Store a listing. A cache that cannot be written is left as it is."""
        try:
            make_private_folder(self._folder)
            replace_private_file(self._locate(spec), msgspec.json.encode(cached))
        except OSError:
            pass

    def _locate(self, spec: ServerSpec) -> Path:
        facts = (spec.name, spec.transport, spec.command, spec.args, spec.cwd, spec.url)
        digest = hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]
        return self._folder / f"{digest}.json"


def find_changed(before: CachedListing | None, after: Listing) -> tuple[str, ...]:
    """Return the names of the tools that a server changed and no user has approved since."""
    if before is None:
        return ()
    old = {tool.name: tool for tool in before.listing.tools}
    return tuple(
        tool.name
        for tool in after.tools
        if tool.name in before.changed
        or (
            tool.name in old
            and (tool.description, tool.parameters)
            != (old[tool.name].description, old[tool.name].parameters)
        )
    )
