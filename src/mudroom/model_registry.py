"""Models by name: the adapter for a model string, made once per session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ._core.ports import Clock, Model
from ._engine.replay_check import recorded_conversations
from .errors import UsageError
from .models import providers

if TYPE_CHECKING:
    from .models._http import HttpClient


class ModelRegistry:
    """Model strings -> models, each made once; one set of connections a provider."""

    def __init__(self, environ: Mapping[str, str], clock: Clock, home: str) -> None:
        self._environ, self._clock, self._home = environ, clock, home
        self._models: dict[str, Model] = {}
        self._connections: dict[str, HttpClient] = {}

    def __call__(self, name: str) -> Model:
        """The model of that name. Raises UnknownName, or UsageError naming the key that is missing."""
        if name not in self._models:
            self._models[name] = self._create_model(name)
        return self._models[name]

    def register(self, model: Model) -> str:
        """Take in a model that somebody else made; its name."""
        self._models[model.name] = model
        return model.name

    async def preload(self) -> None:
        """Have what their connections need imported, so that the first request need not wait for it."""
        if self._connections:
            await asyncio.to_thread(import_module, "aiohttp")

    async def close(self) -> None:
        """Close them all."""
        for one in (*self._models.values(), *self._connections.values()):
            await one.close()

    def _create_model(self, asked: str) -> Model:
        if asked.startswith("replay:"):
            return self._create_replay_model(asked)
        name, model = providers.parse_model_name(asked)
        provider = providers.PROVIDERS[name]
        if provider.wire == "offline":
            from mudroom_offline.model import OfflineModel

            return OfflineModel(pace=read_offline_pace(self._environ), sleep=self._clock.sleep)
        if provider.wire == "pydantic-ai":
            from .models.pydantic_ai import PydanticAIModel

            return PydanticAIModel(f"{name}:{model}", clock=self._clock)
        if provider.wire == "scripted":
            raise UsageError(
                "a scripted model is made in a program",
                where=asked,
                remedy="Pass Session(model=ScriptedModel(...)).",
            )
        return self._create_http_model(provider, model)

    def _create_replay_model(self, asked: str) -> Model:
        from .journals.sqlite.reader import open_reader
        from .journals.sqlite.store import find_by_id
        from .models.replay_model import ReplayModel

        events = list(open_reader(find_by_id(self._home, asked.partition(":")[2])).read())
        return ReplayModel(recorded_conversations(events), name=asked)

    def _create_http_model(self, provider: providers.Provider, model: str) -> Model:
        key, token = (
            providers.get_key(provider, self._environ),
            providers.get_token(provider, self._environ),
        )
        url = providers.get_base_url(provider, self._environ)
        if not is_usable(provider, self._environ):
            remedy = f"Set {' or '.join(provider.key_vars + provider.token_vars)}, or use --model offline."
            raise UsageError(
                f"no key for {provider.name}", where=f"model {provider.name}:{model}", remedy=remedy
            )
        http, name = self._get_connection(provider), f"{provider.name}:{model}"
        headers = providers.get_headers(provider, self._environ)
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

    def _get_connection(self, provider: providers.Provider) -> HttpClient:
        from .models._errors import ProviderHints
        from .models._http import HttpClient

        if provider.name not in self._connections:
            key_env = providers.find_key_variable(provider, self._environ)
            origin = ProviderHints(
                provider.name, key_env, provider.url_vars[0] if provider.url_vars else ""
            )
            self._connections[provider.name] = HttpClient(clock=self._clock, hints=origin)
        return self._connections[provider.name]


def read_offline_pace(environ: Mapping[str, str]) -> float:
    """Tokens a second at which the offline model writes, 0 for as fast as it can."""
    try:
        return max(0.0, float(environ.get("MUDROOM_OFFLINE_PACE") or 0))
    except ValueError:
        raise UsageError(
            "a number of tokens a second is wanted",
            where="$MUDROOM_OFFLINE_PACE",
            remedy="For example 100.",
        ) from None


def is_usable(provider: providers.Provider, environ: Mapping[str, str]) -> bool:
    """Whether a model of this provider can be asked here: a key, an address of one's own, or none needed."""
    if provider.wire in ("offline", "pydantic-ai"):
        return True
    own = providers.get_base_url(provider, environ) != provider.base_url
    return provider.is_local or own or providers.has_key(provider, environ)
