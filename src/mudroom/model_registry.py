"""Models by name: the adapter for a model string, made once per session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ._core.ports import Clock, Model
from ._engine.replay_check import conversations
from .errors import UsageError
from .models import providers

if TYPE_CHECKING:
    from .models._http import Http


class Models:
    """Model strings -> models, each made once; one set of connections a provider."""

    def __init__(self, environ: Mapping[str, str], clock: Clock, home: str) -> None:
        self._environ, self._clock, self._home = environ, clock, home
        self._open: dict[str, Model] = {}
        self._connections: dict[str, Http] = {}

    def __call__(self, name: str) -> Model:
        """The model of that name. Raises UnknownName, or UsageError naming the key that is missing."""
        if name not in self._open:
            self._open[name] = self._made(name)
        return self._open[name]

    def put(self, model: Model) -> str:
        """Take in a model that somebody else made; its name."""
        self._open[model.name] = model
        return model.name

    async def ready(self) -> None:
        """Have what their connections need imported, so that the first request need not wait for it."""
        if self._connections:
            await asyncio.to_thread(import_module, "aiohttp")

    async def close(self) -> None:
        """Close them all."""
        for one in (*self._open.values(), *self._connections.values()):
            await one.close()

    def _made(self, asked: str) -> Model:
        if asked.startswith("replay:"):
            return self._replayed(asked)
        name, model = providers.split(asked)
        provider = providers.PROVIDERS[name]
        if provider.wire == "offline":
            from mudroom_offline.model import OfflineModel

            return OfflineModel(pace=_pace(self._environ), sleep=self._clock.sleep)
        if provider.wire == "library":
            from .models.pydantic_ai import LibraryModel

            return LibraryModel(f"{name}:{model}", clock=self._clock)
        if provider.wire == "scripted":
            raise UsageError(
                "a scripted model is made in a program",
                where=asked,
                remedy="Pass Session(model=ScriptedModel(...)).",
            )
        return self._wired(provider, model)

    def _replayed(self, asked: str) -> Model:
        from .journals.sqlite.journal import find, read_only
        from .models.replay_model import ReplayedModel

        events = list(read_only(find(self._home, asked.partition(":")[2])).read())
        return ReplayedModel(conversations(events), name=asked)

    def _wired(self, provider: providers.Provider, model: str) -> Model:
        key, token = (
            providers.key(provider, self._environ),
            providers.token(provider, self._environ),
        )
        url = providers.base_url(provider, self._environ)
        if not _usable(provider, self._environ):
            remedy = f"Set {' or '.join(provider.keys + provider.tokens)}, or use --model offline."
            raise UsageError(
                f"no key for {provider.name}", where=f"model {provider.name}:{model}", remedy=remedy
            )
        http, name = self._connection(provider), f"{provider.name}:{model}"
        headers = providers.headers(provider, self._environ)
        if provider.wire == "anthropic":
            from .models.anthropic import AnthropicModel

            return AnthropicModel(
                model,
                http=http,
                key=key,
                auth_token=token,
                base_url=url,
                headers=headers,
                name=name,
            )
        if provider.wire == "google":
            from .models.google import GoogleModel

            return GoogleModel(model, http=http, key=key, base_url=url, headers=headers, name=name)
        from .models.openai import OpenAIModel

        return OpenAIModel(model, http=http, key=key, base_url=url, headers=headers, name=name)

    def _connection(self, provider: providers.Provider) -> Http:
        from .models._errors import Origin
        from .models._http import Http

        if provider.name not in self._connections:
            key_env = providers.key_variable(provider, self._environ)
            origin = Origin(provider.name, key_env, provider.urls[0] if provider.urls else "")
            self._connections[provider.name] = Http(clock=self._clock, origin=origin)
        return self._connections[provider.name]


def _pace(environ: Mapping[str, str]) -> float:
    """Tokens a second at which the offline model writes, 0 for as fast as it can."""
    try:
        return max(0.0, float(environ.get("MUDROOM_OFFLINE_PACE") or 0))
    except ValueError:
        raise UsageError(
            "a number of tokens a second is wanted",
            where="$MUDROOM_OFFLINE_PACE",
            remedy="For example 100.",
        ) from None


def _usable(provider: providers.Provider, environ: Mapping[str, str]) -> bool:
    """Whether a model of this provider can be asked here: a key, an address of one's own, or none needed."""
    if provider.wire in ("offline", "library"):
        return True
    own = providers.base_url(provider, environ) != provider.base_url
    return provider.local or own or providers.has_key(provider, environ)
