"""Models' context windows, from the setting, servers, tables and refusals."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._adapters.models.model_facts import ModelFacts
from .._adapters.models.pricing import PriceFile, get_context_window
from .._core.json_values import get_decoder
from .._core.listings import count_noun
from .._core.options import Compaction
from .._engine.context_policy import ContextPolicy, find_no_window
from .._platform.private_files import make_private_folder, replace_private_file
from .model_registry import ModelRegistry, find_local_provider

# Providers of models without a window.
_UNLIMITED = ("offline", "scripted", "replay")
# Tokens, for a model at a local server that does not report its window.
_LOCAL_WINDOW = 32_000
_DEFAULT_WINDOW = 128_000
# The fraction of a refused request that is expected to fit.
_REFUSED_PART = 0.9


class ContextWindows:
    """Context windows in tokens, by model string.

    Arguments:
        setting: window that the user set for all models; overrides `kept`.
        kept: windows that earlier sessions learnt from refusals.
        find_listed: returns the window of a model in the table of prices, 0 if it has none or is
            not loaded.
    """

    def __init__(
        self,
        models: ModelRegistry,
        setting: int | None = None,
        kept: LearntWindows | None = None,
        find_listed: Callable[[str], int] = find_no_window,
    ) -> None:
        self._models = models
        self._setting = setting
        self._learnt: dict[str, int] = {}
        self._kept = kept or LearntWindows("")
        self._find_listed = find_listed

    def find(self, name: str) -> int:
        """Return a model's window, the smallest of several; 0 if no fast source knows it."""
        known = [self._setting or 0] if self._setting else map(self._find_one, _split(name))
        return min(filter(None, [*known, self._learnt.get(name, 0)]), default=0)

    def _find_one(self, name: str) -> int:
        model = self._models.get_model(name)
        is_wire = hasattr(model, "stated_window")
        stated = getattr(model, "stated_window" if is_wire else "context_window", 0)
        stated = stated or _find_local_window(name) or self._find_listed(name)
        kept = self._kept.find(name, getattr(model, "base_url", ""))
        return min(filter(None, (stated, kept)), default=0)

    def look_up(self, name: str) -> int:
        """Look up the window of a model that `find` does not know; 0 if it has no limit."""
        windows = [self._look_up_one(part) for part in _split(name)]
        return min(filter(None, windows), default=0)

    def _look_up_one(self, name: str) -> int:
        if name.partition(":")[0] in _UNLIMITED:
            return 0
        usual = getattr(self._models.get_model(name), "context_window", 0)
        return get_context_window(name) or usual or _DEFAULT_WINDOW

    def learn(self, name: str, size: int, refusal: str) -> int:
        """Learn a model's window from its refusal of a request as too long.

        Returns how many tokens fit, by the estimate that made `size`, the tokens of the request.
        """
        from .._adapters.models.refusals.overflow import (
            find_stated_sizes,  # only a refusal needs it
        )

        stated = find_stated_sizes(refusal)
        window = stated.window or int(size * _REFUSED_PART)
        self._learnt[name] = min(window, self._learnt.get(name, window))
        model: Any = self._models.get_model(name)
        if base_url := getattr(model, "base_url", ""):
            self._kept.add(name, base_url, self._learnt[name])
        facts = getattr(model, "facts", None)
        if isinstance(facts, ModelFacts) and facts.context_window != self._learnt[name]:
            model.change_facts(replace(facts, context_window=self._learnt[name]))
        # The estimate may be far from how the model counts, so what fits is taken as a share of
        # what the model says it got.
        part = stated.window / stated.request if stated.request else _REFUSED_PART
        return min(window, int(size * min(part, _REFUSED_PART)))


def make_context_policy(
    models: ModelRegistry, options: Compaction, home: str, prices: PriceFile
) -> ContextPolicy:
    windows = ContextWindows(
        models, options.context_window, LearntWindows(home), prices.find_window
    )
    return ContextPolicy(
        is_automatic=options.automatic,
        clear_at=options.clear_at / 100,
        compact_at=options.compact_at / 100,
        find_window=windows.find,
        look_up_window=windows.look_up,
        learn_window=windows.learn,
    )


@cache
def _find_local_window(name: str) -> int:
    return _LOCAL_WINDOW if find_local_provider(name) else 0


def _split(name: str) -> list[str]:
    return [part.strip() for part in name.split(",") if part.strip()]


FILE_NAME = "learnt-windows.json"
# Days after which a window is forgotten: the server may accept more by then.
MAX_AGE_DAYS = 30
_SECONDS_PER_DAY = 86_400


class LearntWindow(Struct, frozen=True):
    tokens: int
    at: float


class LearntWindows:
    """Windows by model string and base URL, in a file that processes share; none without a home."""

    def __init__(self, home: str, now: Callable[[], float] = time.time) -> None:
        self.path = Path(home, FILE_NAME)
        self._is_kept = bool(home)
        self._now = now
        self._windows: dict[str, LearntWindow] | None = None

    def find(self, model: str, base_url: str) -> int:
        """Return the window in tokens, 0 if none was learnt recently. The file is read once."""
        if self._windows is None:
            self._windows = self.read()
        window = self._windows.get(_make_key(model, base_url))
        return window.tokens if window else 0

    def add(self, model: str, base_url: str, tokens: int) -> None:
        """Keep a window, unless the folder is not writable."""
        if not self._is_kept:
            return
        with suppress(OSError):
            make_private_folder(self.path.parent)
            with self._lock():
                # Read again under the lock, as another process may have learnt a window.
                windows = self.read()
                windows[_make_key(model, base_url)] = LearntWindow(tokens, self._now())
                replace_private_file(self.path, msgspec.json.encode(windows))
                self._windows = windows

    def read(self) -> dict[str, LearntWindow]:
        """Read the windows that are not too old; none from a damaged file."""
        if not self._is_kept:
            return {}
        try:
            windows = get_decoder(dict[str, LearntWindow]).decode(self.path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        oldest = self._now() - MAX_AGE_DAYS * _SECONDS_PER_DAY
        return {key: window for key, window in windows.items() if window.at >= oldest}

    def describe(self) -> str:
        """Describe the windows and their age in one line, "" if there are none."""
        rows = [
            f"{key} {window.tokens:,} tokens, learnt {self._format_age(window.at)}"
            for key, window in self.read().items()
        ]
        return "; ".join(rows)

    def _format_age(self, at: float) -> str:
        days = int((self._now() - at) // _SECONDS_PER_DAY)
        return f"{count_noun(days, 'day')} ago" if days > 0 else "today"

    @contextmanager
    def _lock(self) -> Generator[None]:
        # A separate file, because replacing the one with the windows would drop its lock.
        with open(self.path.with_suffix(".lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _make_key(model: str, base_url: str) -> str:
    """Make the key of a model at a host, without credentials."""
    return f"{model} at {base_url.partition('://')[2].rpartition('@')[2]}"
