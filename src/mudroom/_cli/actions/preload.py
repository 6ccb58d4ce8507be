"""Background import of the model metadata during session start."""

from __future__ import annotations

import os
from threading import Thread

from ..._adapters.models.pricing import get_context_window
from ..._adapters.models.providers import choose_default_model


def preload_context_windows(model: str) -> None:
    """Load the sizes of context windows in the background, if a session will show its model's.

    Arguments:
        model: a model string, or "auto".
    """
    if model == "auto":
        model = choose_default_model(os.environ) or "offline"
    if not model.startswith(("offline", "replay:")):
        # A daemon, so that a command that ends at once does not wait for the import.
        Thread(target=get_context_window, args=(model,), daemon=True).start()
