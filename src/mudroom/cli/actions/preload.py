"""What is begun before it is needed: the import of what speaks to a model on a network, and of what knows models."""

from __future__ import annotations

import os
from importlib import import_module
from threading import Thread

from ...models.providers import default
from ...pricing import window


def warm(model: str, *, talking: bool = False) -> None:
    """Begin to import it, beside all that is set up before the first request.

    Arguments:
        model: a model string, or "auto". talking: how much its context holds will be shown, too.
    """
    named = (default(os.environ) or "offline") if model == "auto" else model
    if not named.startswith(("offline", "replay:")):
        Thread(target=_begun, args=(named if talking else "",), daemon=True).start()


def _begun(model: str) -> None:
    import_module("aiohttp")
    window(model)
