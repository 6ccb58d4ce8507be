"""What is begun before it is needed: the import of what speaks to a model on a network, and of what knows models."""

from __future__ import annotations

import os
from importlib import import_module
from threading import Thread

from ...models.providers import choose_default_model
from ...pricing import context_window


def preload_packages(model: str, *, show_context_window: bool = False) -> None:
    """Begin to import it, beside all that is set up before the first request.

    Arguments:
        model: a model string, or "auto". talking: how much its context holds will be shown, too.
    """
    named = (choose_default_model(os.environ) or "offline") if model == "auto" else model
    if not named.startswith(("offline", "replay:")):
        Thread(target=_begun, args=(named if show_context_window else "",), daemon=True).start()


def _begun(model: str) -> None:
    import_module("aiohttp")
    context_window(model)
