"""`mudroom serve token`: makes, lists and removes clients' tokens."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing, contextmanager

from msgspec.structs import asdict

from mudroom_serve.state.tokens import Token, TokenRecords

from ..._projections.safe_text import sanitize_line
from ..output.json_output import print_json
from ..output.listing import print_rows
from ..output.progress import print_notice
from .load_settings import load_settings
from .user_store import open_server_state


def add_token(owner: str, *, as_json: bool, store: str | None, **fields: object) -> None:
    """Make a token and print it. Fields that are None or () are left out."""
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    with _open_tokens(store) as tokens:
        token, text = tokens.add(owner, **given)
    if as_json:
        print_json({**asdict(token), "token": text})
        return
    # Only the token goes to stdout, for scripts.
    print(text, flush=True)
    print_notice(f"Token {token.id} of {owner}. It is shown only now; keep it secret.")


def list_tokens(*, as_json: bool, store: str | None) -> None:
    with _open_tokens(store) as tokens:
        known = tokens.list()
    if as_json:
        print_json({"tokens": [asdict(token) for token in known]})
        return
    print_rows([(token.id, describe_token(token)) for token in known])
    if not known:
        print_notice("There are no tokens. mudroom serve token add OWNER makes one.")


def remove_token(token_id: str, *, store: str | None) -> None:
    """Remove a token. Raises UnknownName."""
    with _open_tokens(store) as tokens:
        token = tokens.remove(token_id)
    print_notice(f"Token {token.id} of {token.owner} is removed; open streams end within 15 s.")


def describe_token(token: Token) -> str:
    facts = [
        sanitize_line(token.owner),
        time.strftime("%Y-%m-%d", time.localtime(token.created)),
        " ".join(token.scopes),
    ]
    if token.usd_per_day is not None:
        facts.append(f"${token.usd_per_day:g} a day")
    if token.tokens_per_day is not None:
        facts.append(f"{token.tokens_per_day:,} tokens a day")
    for name in ("agents", "modes", "workspaces"):
        if allowed := getattr(token, name):
            facts.append(f"{name}: {' '.join(allowed)}")
    return ", ".join(facts)


@contextmanager
def _open_tokens(store: str | None) -> Generator[TokenRecords]:
    with closing(open_server_state(load_settings(".", store=store).home)) as state:
        yield TokenRecords(state)
