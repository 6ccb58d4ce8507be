"""Journals of sessions in a PostgreSQL database. Imported only when such a store is used.

`open_store`, `check_url` and `hide_password` are what the core calls for an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .driver import check_url, hide_password

if TYPE_CHECKING:
    from mudroom.ports import SessionStore

__all__ = ["check_url", "hide_password", "open_store"]


def open_store(address: str) -> SessionStore:
    """Return the store in a database. Raises UsageError for an unusable address."""
    from .store import PostgresStore  # slow to import

    return PostgresStore(address)
