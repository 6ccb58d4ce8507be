"""Bearer tokens: a client's owner and rights."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from mudroom.errors import UnknownName, UsageError, quote_value

from .server_state import ServerState

Scope = Literal["read", "run", "answer", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "answer", "admin")
DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "run", "answer")
_PREFIX = "mudroom"
_FRESH_SECONDS = 1.0  # seconds that a token is used before rereading it


class Token(Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    owner: str  # the user or program that its sessions belong to
    # "read" sessions, "run" prompts, "answer" questions, "admin" reads the metrics.
    scopes: tuple[Scope, ...] = DEFAULT_SCOPES
    usd_per_day: float | None = None  # the owner's daily limit (UTC); None for no limit
    tokens_per_day: int | None = None
    agents: tuple[str, ...] = ()  # () allows all; so does () for workspaces
    modes: tuple[str, ...] = ()  # that it may choose besides the server's
    workspaces: tuple[str, ...] = ()
    created: float = 0.0  # seconds since 1970


_TOKEN = msgspec.json.Decoder(Token)


class TokenRecords:
    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._known: dict[str, tuple[float, tuple[Token, bytes] | None]] = {}

    def add(self, owner: str, **fields: object) -> tuple[Token, str]:
        """Store a new token; return it and its text, which is not stored."""
        if not is_owner_name(owner):
            raise UsageError(
                f"{quote_value(owner)} is no name of an owner",
                remedy="Use up to 100 characters in one line.",
            )
        values = {"id": secrets.token_hex(4), "owner": owner, "created": time.time(), **fields}
        token = msgspec.convert(values, Token)
        secret = secrets.token_urlsafe(32)
        row = (token.id, owner, _compute_digest(secret), msgspec.json.encode(token).decode())
        self._state.run_now(
            lambda connection: connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", row)
        )
        return token, f"{_PREFIX}_{token.id}_{secret}"

    def list(self) -> Sequence[Token]:
        rows = self._state.read_now(
            lambda connection: connection.execute("SELECT body FROM tokens").fetchall()
        )
        tokens = [_TOKEN.decode(body) for (body,) in rows]
        return sorted(tokens, key=lambda token: token.created)

    def remove(self, id: str) -> Token:
        tokens = {token.id: token for token in self.list()}
        if id not in tokens:
            raise UnknownName("token", id, tokens)
        self._state.run_now(
            lambda connection: connection.execute("DELETE FROM tokens WHERE id = ?", (id,))
        )
        return tokens[id]

    async def find(self, text: str) -> Token | None:
        prefix, _, rest = text.partition("_")
        name, _, secret = rest.partition("_")
        if prefix != _PREFIX or not secret:
            return None
        known = await self._read(name)
        if known is None:
            return None
        token, digest = known
        return token if hmac.compare_digest(digest, _compute_digest(secret)) else None

    async def _read(self, id: str) -> tuple[Token, bytes] | None:
        now = time.monotonic()
        read_at, known = self._known.get(id, (float("-inf"), None))
        if now - read_at < _FRESH_SECONDS:
            return known

        row = await self._state.find_row("SELECT body, digest FROM tokens WHERE id = ?", id)
        known = (_TOKEN.decode(row[0]), row[1]) if row else None
        if known is None:
            self._known.pop(id, None)  # wrong ids are not kept
        else:
            self._known[id] = (now, known)
        return known


def is_owner_name(text: str) -> bool:
    return text.isprintable() and bool(text.strip()) and len(text) <= 100


def is_token(text: str) -> bool:
    """Return whether text has the form of a token, which may be removed or wrong."""
    return text.startswith(f"{_PREFIX}_")


def _compute_digest(secret: str) -> bytes:
    # The secret is random, so a fast hash is enough.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
