"""Models by name: chooses the adapter for a model string, created once per session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .._adapters.models import providers
from .._adapters.models.model_facts import find_facts
from .._core.messages import RecordedConversation
from .._core.ports import Clock, Model, RateLimiter, SessionStore
from .._engine.recorded_conversations import rebuild_conversations
from ..errors import UsageError

if TYPE_CHECKING:
    from .._adapters.models._http import HttpClient
    from .._adapters.models._wire import WireModel
    from .._adapters.models.replay_model import ReplayModel
    from .._adapters.models.served_models import ServedModel

_REPLAY = "replay:"

# Looked for first. `mudroom models` lists the other providers' variables.
MODEL_VARIABLES = (
    "ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENAI_BASE_URL or OLLAMA_HOST"
)


class ModelRegistry:
    """A session's models, by model string, and one HTTP client per provider.

    `windows`, in tokens, and `images` are what local servers reported, by model string. With
    `takes_images`, images are sent even to models not known to accept them.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        clock: Clock,
        make_replay: Callable[[str], Model],
        *,
        takes_images: bool = False,
        windows: Mapping[str, int] = {},
        images: Mapping[str, bool] = {},
        make_rate_limiter: Callable[[str], RateLimiter] | None = None,
    ) -> None:
        self.windows = dict(windows)
        self.images = dict(images)
        self._without_tools: set[str] = set()
        self._environ = environ
        self._clock = clock
        self._make_replay = make_replay
        self._takes_images = takes_images
        self._models: dict[str, Model] = {}
        self._connections: dict[str, HttpClient] = {}
        self._make_rate_limiter = make_rate_limiter or self._make_own_rate_limiter
        self._rate_limiters: dict[str, RateLimiter] = {}

    def get_model(self, name: str) -> Model:
        """Return the model of this name; several names separated by commas are one model."""
        if name not in self._models:
            self._models[name] = self._create_model(name)
        return self._models[name]

    async def choose_default(self) -> str | None:
        name, served = await asyncio.to_thread(choose_default_model, self._environ)
        if name and served:
            self._keep_details(name, served)
        return name

    def _keep_details(self, name: str, served: ServedModel) -> None:
        if served.context_window:
            self.windows[name] = served.context_window
        if served.takes_images is not None:
            self.images[name] = served.takes_images
        if served.takes_tools is False:
            self._without_tools.add(name)

    def explain_refused_images(self, name: str) -> str:
        """Explain why none of a model string's models takes images, "" if one may."""
        parts = [part.strip() for part in name.split(",")]
        if self._takes_images or any(self.images.get(part, True) for part in parts):
            return ""
        return f"the server says that {name} takes no images"

    async def ask_servers(self, name: str) -> None:
        """Ask those of a model string's servers that describe their models for details."""
        for part in map(str.strip, name.split(",")):
            if provider := find_local_provider(part) or self._find_gateway(part):
                _, model = providers.parse_model_name(part)
                served = await asyncio.to_thread(list_models, provider, self._environ, model)
                for details in served:
                    self._keep_details(f"{provider.name}:{details.name}", details)

    def _find_gateway(self, name: str) -> providers.Provider | None:
        """Find the provider of a model string if it tells what each of its models takes."""
        provider = _find_provider(name)
        is_asked = provider and provider.describes_models and is_usable(provider, self._environ)
        return provider if is_asked else None

    async def prepare(self, name: str, where: str) -> str:
        """Create a model and return its name. `where` is the setting that names it."""
        await self.ask_servers(name)
        try:
            return self.get_model(name).name
        except UsageError as error:
            raise UsageError(error.message, where=where, remedy=error.remedy) from error

    def register(self, model: Model) -> str:
        self._models[model.name] = model
        return model.name

    async def load_replays(self) -> None:
        """Read the sessions of `replay:` models now. Raises UnknownName, JournalError."""
        for name, model in self._models.items():
            if name.startswith(_REPLAY):
                await cast("ReplayModel", model).load()

    async def close(self) -> None:
        for resource in (*self._models.values(), *self._connections.values()):
            await resource.close()

    def get_rate_limiter(self, provider: str) -> RateLimiter:
        if provider not in self._rate_limiters:
            self._rate_limiters[provider] = self._make_rate_limiter(provider)
        return self._rate_limiters[provider]

    def _make_own_rate_limiter(self, _: str) -> RateLimiter:
        from .._adapters.models._rate_limit import AdaptiveRateLimiter

        return AdaptiveRateLimiter(self._clock)

    def _create_model(self, name: str) -> Model:
        if "," in name:
            from .._adapters.models.fallback import FallbackModel

            models = [self.get_model(part.strip()) for part in name.split(",") if part.strip()]
            return FallbackModel(models, self._clock.monotonic)
        if name.startswith(_REPLAY):
            return self._make_replay(name)
        provider_name, model = providers.parse_model_name(name)
        provider = providers.PROVIDERS[provider_name]
        if provider.wire == "offline":
            from mudroom_offline.model import OfflineModel

            return OfflineModel(pace=read_offline_pace(self._environ), sleep=self._clock.sleep)
        if provider.wire == "library":
            from .._adapters.models._errors import ProviderHints
            from .._adapters.models.pydantic_ai import PydanticAIModel

            return PydanticAIModel(
                f"{provider_name}:{model}",
                clock=self._clock,
                hints=ProviderHints(
                    provider_name, providers.find_key_variable(provider, self._environ)
                ),
                takes_images=self._takes_images or providers.takes_images(provider, model),
                limiter=self.get_rate_limiter(provider_name),
            )
        if provider.wire == "scripted":
            raise UsageError(
                "a scripted model exists only in a program",
                where=name,
                remedy="Pass Session(model=ScriptedModel(...)).",
            )
        return self._create_http_model(provider, model)

    def _create_http_model(self, provider: providers.Provider, model: str) -> Model:
        name = f"{provider.name}:{model}"
        if not is_usable(provider, self._environ):
            variables = " or ".join(provider.key_vars + provider.token_vars)
            raise UsageError(
                f"no key for {provider.name}",
                where=f"model {name}",
                remedy=f"Set {variables}, or use --model offline.",
            )
        url = providers.get_base_url(provider, self._environ)
        window = self.windows.get(name, 0)
        wire = choose_wire(provider, model, url)
        if wire == "ollama":
            window = window or providers.get_ollama_window(self._environ)
        return _load_wire(wire)(
            model,
            http=self._get_connection(provider),
            key=providers.get_key(provider, self._environ),
            base_url=url,
            headers=providers.get_headers(provider, self._environ),
            name=name,
            takes_images=self._takes_images
            or self.images.get(name, providers.takes_images(provider, model)),
            takes_tools=name not in self._without_tools,
            context_window=window,
        )

    def _get_connection(self, provider: providers.Provider) -> HttpClient:
        from .._adapters.models._errors import ProviderHints
        from .._adapters.models._http import HttpClient

        if provider.name not in self._connections:
            key_variable = providers.find_key_variable(provider, self._environ)
            url_variable = providers.get_url_variable(provider)
            hints = ProviderHints(provider.name, key_variable, url_variable)
            self._connections[provider.name] = HttpClient(
                clock=self._clock, hints=hints, limiter=self.get_rate_limiter(provider.name)
            )
        return self._connections[provider.name]


def make_replay_model(name: str, store: SessionStore) -> Model:
    """Make the model for a `replay:` model string, which reads its session on first use."""
    from .._adapters.models.replay_model import ReplayModel

    async def read() -> Sequence[RecordedConversation]:
        from .._adapters.journals.sessions import read_events

        session = await store.find(name.removeprefix(_REPLAY))
        return rebuild_conversations(await read_events(store, session))

    return ReplayModel(read, name=name)


def choose_default_model(environ: Mapping[str, str]) -> tuple[str | None, ServedModel | None]:
    """Choose the default model string, with details if the user's own server has it.

    If the user set a server's address, the server decides: the provider's default model if it lists
    that, else the first model it lists.
    """
    name = providers.choose_default_model(environ)
    provider = providers.find_own_server(environ, name)
    if provider is None:
        return name, None
    served = list_models(provider, environ, (name or "").partition(":")[2])
    by_name = {f"{provider.name}:{model.name}": model for model in served}
    if not by_name:
        return name, None
    chosen = name if name in by_name else next(iter(by_name))
    return chosen, by_name[chosen]


def find_local_provider(name: str) -> providers.Provider | None:
    provider = _find_provider(name)
    is_server = provider and provider.is_local and provider.wire in ("openai", "ollama")
    return provider if is_server else None


def _find_provider(name: str) -> providers.Provider | None:
    try:
        return providers.PROVIDERS[providers.parse_model_name(name)[0]]
    except UsageError:
        return None


def choose_wire(provider: providers.Provider, model: str, url: str) -> str:
    if provider.wire == "openai-auto":
        return "openai-responses" if find_facts(model, url).serves_responses else "openai"
    # The address may be that of Ollama's OpenAI-compatible API.
    if provider.wire == "ollama" and url.rstrip("/").endswith("/v1"):
        return "openai"
    return provider.wire


def list_models(
    provider: providers.Provider, environ: Mapping[str, str], wanted: str
) -> list[ServedModel]:
    """Ask a provider's server for its models, and for details about the wanted one."""
    from .._adapters.models.served_models import ask_gateway, list_ollama_models, list_served_models

    url = providers.get_base_url(provider, environ)
    key = providers.get_key(provider, environ)
    if provider.describes_models:
        return ask_gateway(url, key, wanted)
    if choose_wire(provider, wanted, url) == "ollama":
        window = providers.get_ollama_window(environ)
        return list_ollama_models(url.rstrip("/"), key, wanted, window)
    return list_served_models(url, key)


def _load_wire(wire: str) -> type[WireModel]:
    if wire == "anthropic":
        from .._adapters.models.anthropic import AnthropicModel

        return AnthropicModel
    if wire == "google":
        from .._adapters.models.google import GoogleModel

        return GoogleModel
    if wire == "ollama":
        from .._adapters.models.ollama import OllamaModel

        return OllamaModel
    if wire == "openai-responses":
        from .._adapters.models.openai.responses import ResponsesModel

        return ResponsesModel
    from .._adapters.models.openai.chat import OpenAIModel

    return OpenAIModel


def explain_offline(environ: Mapping[str, str]) -> str:
    text = (
        "No API key and no local server found: using the offline model, which follows rules and "
        f"knows a few tasks. For a real model set {MODEL_VARIABLES}."
    )
    if pace := read_offline_pace(environ):
        text += f" It writes {pace:g} tokens per second, as $MUDROOM_OFFLINE_PACE says."
    return text


def make_missing_model_error(where: str = "") -> UsageError:
    """Make the error for "auto" without a model; `where` is "" for a single session."""
    return UsageError(
        "no model: no API key and no local server found",
        where=where,
        remedy=f"Set {MODEL_VARIABLES}, or the variable of another provider (mudroom models lists "
        'them), or name a model. The model "offline" needs no key: it is a demo that follows '
        "rules.",
    )


def read_offline_pace(environ: Mapping[str, str]) -> float:
    """Read the offline model's speed in tokens per second; 0 means no limit."""
    try:
        return max(0.0, float(environ.get("MUDROOM_OFFLINE_PACE") or 0))
    except ValueError:
        raise UsageError(
            "the value must be a number of tokens per second",
            where="$MUDROOM_OFFLINE_PACE",
            remedy="For example 100.",
        ) from None


def is_usable(provider: providers.Provider, environ: Mapping[str, str]) -> bool:
    """Return whether a provider is usable: it needs no key, or a key or address is set."""
    if provider.wire in ("offline", "library"):
        return True
    has_own_url = providers.get_base_url(provider, environ) != provider.base_url
    return provider.is_local or has_own_url or providers.has_key(provider, environ)


def explain_unusable(model: str, environ: Mapping[str, str]) -> str:
    """Explain why a model string cannot be used here, "" if it can."""
    parts = [part for part in map(str.strip, model.split(",")) if not part.startswith(_REPLAY)]
    try:
        names = [providers.parse_model_name(part)[0] for part in parts]
    except UsageError as error:
        return error.message
    usable = (is_usable(providers.PROVIDERS[name], environ) for name in names)
    return "" if all(usable) else "no key for it"
