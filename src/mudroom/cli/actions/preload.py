"""Background import of slow packages (HTTP client, model metadata) during session start."""

from __future__ import annotations

import os
from importlib import import_module
from threading import Thread

from ...models.providers import choose_default_model
from ...pricing import get_context_window


def preload_packages(model: str, *, show_context_window: bool = False) -> None:
    """Start the imports that a model needs.

    Arguments:
        model: a model string, or "auto".
        show_context_window: the size of the model's context will be shown; load it as well.
    """
    if model == "auto":
        model = choose_default_model(os.environ) or "offline"
    if model.startswith(("offline", "replay:")):
        return
    sized_model = model if show_context_window else ""
    Thread(target=_import_packages, args=(sized_model,), daemon=True).start()


def _import_packages(sized_model: str) -> None:
    import_module("aiohttp")
    get_context_window(sized_model)
