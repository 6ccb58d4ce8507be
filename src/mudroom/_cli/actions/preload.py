"""Background import of the model metadata during session start."""

from __future__ import annotations

import os
from threading import Thread

from ..._adapters.models.providers import choose_default_model
from ..._session.pricing import get_context_window


def preload_context_windows(model: str) -> None:
    """Start to load the sizes of context windows if a session will show the one of its model.

    Arguments:
        model: a model string, or "auto".
    """
    if model == "auto":
        model = choose_default_model(os.environ) or "offline"
    if not model.startswith(("offline", "replay:")):
        Thread(target=get_context_window, args=(model,), daemon=True).start()
