"""What is begun before it is needed: the import of what speaks to a model on a network."""

from __future__ import annotations

import os
from importlib import import_module
from threading import Thread

from ..models.providers import default


def warm(model: str) -> None:
    """Begin to import it, beside all that is set up before the first request. `model`: a model string, or "auto"."""
    named = (default(os.environ) or "offline") if model == "auto" else model
    if not named.startswith(("offline", "replay:")):
        Thread(target=import_module, args=("aiohttp",), daemon=True).start()
