"""Journals of sessions in a PostgreSQL database. Imported only when such a store is used.

The core calls `open_store`, `open_connection`, `check_url` and `hide_password` for an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .driver import check_url, hide_password

if TYPE_CHECKING:
    from mudroom.ports import SessionStore

    from .blocking import BlockingConnection

__all__ = ["check_url", "hide_password", "open_connection", "open_store"]


def open_store(address: str) -> SessionStore:
    """Open the store in a database. Raises UsageError for an unusable address."""
    from .store import PostgresStore  # slow to import

    return PostgresStore(address)


def open_connection(address: str) -> BlockingConnection:
    """Open a connection for tables of another part of mudroom. Raises UsageError."""
    from .blocking import BlockingConnection  # slow to import

    return BlockingConnection(address)
