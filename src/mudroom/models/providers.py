"""Who serves models: the names people use for them, where their keys and addresses are found, and which wire they speak."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..errors import UnknownName, UsageError


class Provider(Struct, frozen=True, kw_only=True):
    """One provider.

    Arguments:
        name: as in "provider:model". wire: "anthropic", "openai", "google", "library", "offline" or "scripted".
        base_url: where it is when no variable says otherwise; "" if the wire knows.
        keys: environment variables of its key, the first that is set counts; tokens: of a bearer token instead.
        urls: environment variables of its base URL. models: of the model to use by default. headers: of more headers.
        model: the model when none is named, "" if there is no sensible one. prefixes: bare model names that begin so are its.
        local: it runs on one's own machine and needs no key.
    """

    name: str
    wire: str = "openai"
    base_url: str = ""
    key_vars: tuple[str, ...] = ()
    token_vars: tuple[str, ...] = ()
    url_vars: tuple[str, ...] = ()
    model_vars: tuple[str, ...] = ()
    header_vars: tuple[str, ...] = ()
    default_model: str = ""
    model_prefixes: tuple[str, ...] = ()
    is_local: bool = False


def _compatible(
    name: str, base_url: str, *keys: str, model: str = "", prefixes: tuple[str, ...] = ()
) -> Provider:
    stem = name.upper()
    return Provider(
        name=name,
        base_url=base_url,
        key_vars=keys or (f"{stem}_API_KEY",),
        url_vars=(f"{stem}_BASE_URL",),
        model_vars=(f"{stem}_MODEL",),
        default_model=model,
        model_prefixes=prefixes,
    )


def _local(name: str, base_url: str, model: str = "", urls: tuple[str, ...] = ()) -> Provider:
    stem = name.upper()
    return Provider(
        name=name,
        base_url=base_url,
        key_vars=(f"{stem}_API_KEY",),
        url_vars=urls or (f"{stem}_BASE_URL",),
        model_vars=(f"{stem}_MODEL",),
        default_model=model,
        is_local=True,
    )


_TABLE = (
    Provider(
        name="anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_vars=("ANTHROPIC_API_KEY",),
        token_vars=("ANTHROPIC_AUTH_TOKEN",),
        url_vars=("ANTHROPIC_BASE_URL",),
        model_vars=("ANTHROPIC_MODEL",),
        header_vars=("ANTHROPIC_CUSTOM_HEADERS",),
        default_model="claude-sonnet-5-5",
        model_prefixes=("claude-",),
    ),
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_vars=("OPENAI_API_KEY",),
        url_vars=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        model_vars=("OPENAI_MODEL",),
        default_model="gpt-6.1-sol",
        model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4", "ft:gpt-"),
    ),
    Provider(
        name="google",
        wire="google",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_vars=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_vars=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        model_vars=("GEMINI_MODEL",),
        default_model="gemini-flash-latest",
        model_prefixes=("gemini-", "gemma-"),
    ),
    _local(
        "ollama", "http://127.0.0.1:11434/v1", "qwen3:8b", urls=("OLLAMA_BASE_URL", "OLLAMA_HOST")
    ),
    _compatible("openrouter", "https://openrouter.ai/api/v1", model="openrouter/auto"),
    _compatible("groq", "https://api.groq.com/openai/v1", model="openai/gpt-oss-120b"),
    _compatible("xai", "https://api.x.ai/v1", model="grok-4", prefixes=("grok-",)),
    _compatible(
        "mistral",
        "https://api.mistral.ai/v1",
        model="mistral-large-latest",
        prefixes=("mistral-", "codestral-", "devstral-"),
    ),
    _compatible(
        "deepseek", "https://api.deepseek.com/v1", model="deepseek-chat", prefixes=("deepseek-",)
    ),
    _compatible("together", "https://api.together.xyz/v1", model="openai/gpt-oss-120b"),
    _compatible(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    _compatible("cerebras", "https://api.cerebras.ai/v1", model="gpt-oss-120b"),
    _compatible(
        "moonshotai",
        "https://api.moonshot.ai/v1",
        "MOONSHOTAI_API_KEY",
        "MOONSHOT_API_KEY",
        model="kimi-latest",
    ),
    _compatible("zai", "https://api.z.ai/api/paas/v4", model="glm-4.6", prefixes=("glm-",)),
    _local("lmstudio", "http://127.0.0.1:1234/v1"),
    _local("vllm", "http://127.0.0.1:8000/v1"),
    _local("llamacpp", "http://127.0.0.1:8080/v1"),
    Provider(name="offline", wire="offline", default_model="offline", is_local=True),
    Provider(name="scripted", wire="scripted", default_model="model", is_local=True),
    *(
        Provider(name=name, wire="library")
        for name in (
            "alibaba",
            "azure",
            "bedrock",
            "cohere",
            "crusoe",
            "gateway",
            "github",
            "github-copilot",
            "google-cloud",
            "google-vertex",
            "heroku",
            "huggingface",
            "litellm",
            "meta",
            "nebius",
            "openai-responses",
            "ovhcloud",
            "sambanova",
            "snowflake",
            "vercel",
        )
    ),
)
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}
_OTHER_NAMES = {
    "gemini": "google",
    "google-gla": "google",
    "claude": "anthropic",
    "openai-chat": "openai",
    "x-ai": "xai",
    "grok": "xai",
    "lm-studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "moonshot": "moonshotai",
    "z-ai": "zai",
    "mistralai": "mistral",
}
_SHORT = {
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "haiku": "claude-haiku-5-5",
}


def parse_model_name(name: str) -> tuple[str, str]:
    """The provider and its model that a model string names: "provider:model", "provider/model", a bare model, a bare provider.

    Raises UnknownName with the nearest names, UsageError for a provider without a model.
    """
    name = name.strip()
    at = min((at for mark in ":/" if (at := name.find(mark)) >= 0), default=len(name))
    left, model = name[:at].lower(), name[at + 1 :].strip()
    provider = PROVIDERS.get(_OTHER_NAMES.get(left, left))
    if provider is not None:
        model = _SHORT.get(model, model) if provider.name == "anthropic" else model
        if not (model or provider.default_model):
            raise UsageError(
                f"which model of {provider.name}?", remedy=f"Write {provider.name}:MODEL."
            )
        return provider.name, model or provider.default_model
    if name.lower() in _SHORT:
        return "anthropic", _SHORT[name.lower()]
    for provider in _TABLE:
        if name.lower().startswith(provider.model_prefixes or "\0"):
            return provider.name, name
    known = [*PROVIDERS, *_SHORT] if at == len(name) else PROVIDERS
    raise UnknownName(
        "model" if at == len(name) else "model provider",
        name if at == len(name) else name[:at],
        known,
    )


def choose_default_model(environ: Mapping[str, str]) -> str | None:
    """The model string that an environment suggests: MUDROOM_MODEL, else by the first key or server found; None for nothing."""
    if named := _value(environ, ("MUDROOM_MODEL",)):
        return named
    first = [PROVIDERS[name] for name in ("anthropic", "openai", "google")]
    here = [PROVIDERS["openai"], *(provider for provider in _TABLE if provider.is_local)]
    keyed = [provider for provider in _TABLE if provider not in first and not provider.is_local]
    return (
        next(
            (_suggested(provider, environ) for provider in first if has_key(provider, environ)),
            None,
        )
        or next(
            (
                _suggested(provider, environ)
                for provider in here
                if _value(environ, provider.url_vars)
            ),
            None,
        )
        or next(
            (_suggested(provider, environ) for provider in keyed if has_key(provider, environ)),
            None,
        )
    )


def list_usable_models(environ: Mapping[str, str]) -> list[str]:
    """Model strings that can be used as they are: of every provider whose key or address is set the usual one, of Anthropic's a family."""
    here = [
        provider
        for provider in _TABLE
        if has_key(provider, environ) or _value(environ, provider.url_vars)
    ]
    names = [_suggested(provider, environ) for provider in here]
    if any(provider.name == "anthropic" for provider in here):
        names += [f"anthropic:{model}" for model in _SHORT.values()]
    return list(dict.fromkeys(filter(None, names)))


def has_key(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether the environment holds a key or token for it."""
    return bool(_value(environ, provider.key_vars + provider.token_vars))


def get_key(provider: Provider, environ: Mapping[str, str]) -> str:
    """Its key, "" if there is none."""
    return _value(environ, provider.key_vars)


def get_token(provider: Provider, environ: Mapping[str, str]) -> str:
    """Its bearer token, "" if there is none."""
    return _value(environ, provider.token_vars)


def find_key_variable(provider: Provider, environ: Mapping[str, str]) -> str:
    """The variable its key comes from, or should; "" for none."""
    names = provider.key_vars + provider.token_vars
    return next(
        (name for name in names if _value(environ, (name,))),
        "" if provider.is_local else next(iter(names), ""),
    )


def get_base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    """Where it is. OLLAMA_HOST is Ollama's own notation: a host, a host and port, or a URL without `/v1`."""
    if (
        provider.name == "ollama"
        and not _value(environ, ("OLLAMA_BASE_URL",))
        and (host := _value(environ, ("OLLAMA_HOST",)))
    ):
        return _from_ollama(host)
    return _value(environ, provider.url_vars) or provider.base_url


def get_headers(provider: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    """More headers to send, from lines of "Name: value"."""
    lines = _value(environ, provider.header_vars).splitlines()
    return {
        name.strip(): value.strip()
        for name, mark, value in (line.partition(":") for line in lines)
        if mark
    }


def _suggested(provider: Provider, environ: Mapping[str, str]) -> str | None:
    model = _value(environ, provider.model_vars)
    model = _SHORT.get(model, model) or provider.default_model
    return f"{provider.name}:{model}" if model else None


def _value(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of the variables that is set and not blank; MUDROOM_NAME goes before NAME."""
    found = (
        environ.get(spelling, "").strip()
        for name in names
        for spelling in (f"MUDROOM_{name}", name)
    )
    return next((value for value in found if value), "")


def _from_ollama(host: str) -> str:
    scheme, mark, rest = host.partition("://")
    scheme, rest = (scheme, rest) if mark else ("http", host)
    place, _, path = rest.rstrip("/").partition("/")
    place = (
        place.replace("0.0.0.0", "127.0.0.1") if not place.startswith(":") else f"127.0.0.1{place}"
    )
    port = (
        ""
        if place.rpartition(":")[2].isdigit() and not place.endswith("]")
        else {"https": ":443"}.get(scheme, ":11434")
    )
    path = path.removesuffix("v1").rstrip("/")
    return f"{scheme}://{place}{port}/{path + '/' if path else ''}v1"
