"""The table of model providers: names, environment variables, addresses and wires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ...errors import UsageError
from .model_facts import find_facts


class Provider(Struct, frozen=True, kw_only=True):
    """A row of the table. Among environment variables of one kind, the first one set is used.

    Arguments:
        wire: "anthropic", "openai" (Chat Completions), "openai-responses", "openai-auto" (one of
            these two, by the address), "ollama" ("openai" if the address ends in /v1), "google",
            "library" (pydantic-ai), "offline" or "scripted".
        base_url: "" if the wire has it.
        token_vars: variables for a bearer token instead of a key.
        default_model: "" if there is no sensible one.
        shortcuts: short model names that work without the provider's name.
        model_prefixes: model names with one of these prefixes belong to this provider.
        describes_models: says which of its models take tools; asked before the first request.
        is_local: runs on the user's machine, needs no key, and is assumed to take no images.
    """

    name: str
    aliases: tuple[str, ...] = ()
    wire: str = "openai"
    base_url: str = ""
    key_vars: tuple[str, ...] = ()
    token_vars: tuple[str, ...] = ()
    url_vars: tuple[str, ...] = ()
    model_vars: tuple[str, ...] = ()
    header_vars: tuple[str, ...] = ()
    default_model: str = ""
    shortcuts: Mapping[str, str] = {}
    model_prefixes: tuple[str, ...] = ()
    describes_models: bool = False
    is_local: bool = False


def _make_compatible(
    name: str,
    base_url: str,
    *aliases: str,
    model: str = "",
    prefixes: tuple[str, ...] = (),
    key_vars: tuple[str, ...] = (),
    describes_models: bool = False,
) -> Provider:
    """Make a provider that speaks the OpenAI protocol; one on loopback needs no key."""
    return Provider(
        name=name,
        aliases=aliases,
        base_url=base_url,
        key_vars=key_vars or (f"{name.upper()}_API_KEY",),
        url_vars=(f"{name.upper()}_BASE_URL",),
        model_vars=(f"{name.upper()}_MODEL",),
        default_model=model,
        model_prefixes=prefixes,
        describes_models=describes_models,
        is_local=base_url.startswith("http://127.0.0.1:"),
    )


# Tokens. Ollama's own default is 4,096 on most machines, too little for an agent.
_OLLAMA_WINDOW = 32_768
_OPENAI_KEY = ("OPENAI_API_KEY",)
_OPENAI_URL = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
# Providers of pydantic-ai with the variables for their keys, which it reads itself.
_VIA_PYDANTIC_AI = {
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "azure": ("AZURE_OPENAI_API_KEY",),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
    "cohere": ("CO_API_KEY",),
    "crusoe": ("CRUSOE_API_KEY",),
    "github-copilot": ("GITHUB_COPILOT_API_KEY", "GITHUB_COPILOT_API_TOKEN"),
    "google-cloud": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "huggingface": ("HF_TOKEN",),
    "litellm": (),
    "meta": ("META_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "ovhcloud": ("OVHCLOUD_API_KEY",),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "snowflake": ("SNOWFLAKE_TOKEN",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
}

_TABLE = (
    Provider(
        name="anthropic",
        aliases=("claude",),
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_vars=("ANTHROPIC_API_KEY",),
        token_vars=("ANTHROPIC_AUTH_TOKEN",),
        url_vars=("ANTHROPIC_BASE_URL",),
        model_vars=("ANTHROPIC_MODEL",),
        header_vars=("ANTHROPIC_CUSTOM_HEADERS",),
        default_model="claude-sonnet-5-5",
        shortcuts={
            "sonnet": "claude-sonnet-5-5",
            "opus": "claude-opus-5-5",
            "haiku": "claude-haiku-5-5",
            "fable": "claude-fable-5-2",
            "best": "claude-fable-5-2",
            "opusplan": "claude-sonnet-5-5",
        },
        model_prefixes=("claude-",),
    ),
    Provider(
        name="openai",
        wire="openai-auto",
        base_url="https://api.openai.com/v1",
        key_vars=_OPENAI_KEY,
        url_vars=_OPENAI_URL,
        model_vars=("OPENAI_MODEL",),
        default_model="gpt-6.1-sol",
        model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4", "ft:gpt-"),
    ),
    *(
        Provider(
            name=name,
            wire=wire,
            base_url="https://api.openai.com/v1",
            key_vars=_OPENAI_KEY,
            url_vars=_OPENAI_URL,
        )
        for name, wire in (("openai-chat", "openai"), ("openai-responses", "openai-responses"))
    ),
    Provider(
        name="google",
        aliases=("gemini", "google-gla"),
        wire="google",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_vars=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_vars=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        model_vars=("GEMINI_MODEL",),
        default_model="gemini-flash-latest",
        model_prefixes=("gemini-", "gemma-"),
    ),
    Provider(
        name="ollama",
        wire="ollama",
        base_url="http://127.0.0.1:11434",
        key_vars=("OLLAMA_API_KEY",),
        url_vars=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        model_vars=("OLLAMA_MODEL",),
        default_model="qwen3:8b",
        is_local=True,
    ),
    _make_compatible(
        "openrouter",
        "https://openrouter.ai/api/v1",
        model="anthropic/claude-sonnet-5.5",
        describes_models=True,
    ),
    _make_compatible("groq", "https://api.groq.com/openai/v1", model="openai/gpt-oss-120b"),
    _make_compatible(
        "xai", "https://api.x.ai/v1", "x-ai", "grok", model="grok-4.7", prefixes=("grok-",)
    ),
    _make_compatible(
        "mistral",
        "https://api.mistral.ai/v1",
        "mistralai",
        model="mistral-large-4",
        prefixes=("mistral-", "codestral-", "devstral-"),
    ),
    _make_compatible(
        "deepseek",
        "https://api.deepseek.com/v1",
        model="deepseek-v4-flash",
        prefixes=("deepseek-",),
    ),
    _make_compatible("together", "https://api.together.xyz/v1", model="openai/gpt-oss-120b"),
    _make_compatible(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    _make_compatible("cerebras", "https://api.cerebras.ai/v1", model="gpt-oss-120b"),
    _make_compatible(
        "moonshotai",
        "https://api.moonshot.ai/v1",
        "moonshot",
        model="kimi-k3.1-pro",
        key_vars=("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
    ),
    _make_compatible(
        "zai", "https://api.z.ai/api/paas/v4", "z-ai", model="glm-5.3", prefixes=("glm-",)
    ),
    _make_compatible("lmstudio", "http://127.0.0.1:1234/v1", "lm-studio"),
    _make_compatible("vllm", "http://127.0.0.1:8000/v1"),
    _make_compatible("llamacpp", "http://127.0.0.1:8080/v1", "llama.cpp"),
    Provider(name="offline", wire="offline", default_model="offline", is_local=True),
    Provider(name="scripted", wire="scripted", default_model="model", is_local=True),
    *(
        Provider(name=name, wire="library", key_vars=key_vars)
        for name, key_vars in _VIA_PYDANTIC_AI.items()
    ),
)
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}
_BY_ANY_NAME = {
    name: provider for provider in _TABLE for name in (provider.name, *provider.aliases)
}
_SHORTCUTS = {
    short: (provider.name, model)
    for provider in _TABLE
    for short, model in provider.shortcuts.items()
}

# Claude Code's suffix for a window of a million tokens.
_LONG_WINDOW = "[1m]"


def find_model(name: str) -> tuple[str, str] | None:
    """Find the provider and model that a model string means; None if no provider is known.

    The string is "provider:model", "provider/model", a provider, a model or a shortcut. Claude
    Code's suffix "[1m]" is dropped: the whole window of a model is used anyway. The model is ""
    for a provider without a default one.
    """
    name = name.strip()
    if name.lower().endswith(_LONG_WINDOW):
        name = name[: -len(_LONG_WINDOW)]
    start, _, model = _split_name(name)
    if provider := _BY_ANY_NAME.get(start.lower()):
        return provider.name, provider.shortcuts.get(model, model) or provider.default_model
    if name.lower() in _SHORTCUTS:
        return _SHORTCUTS[name.lower()]
    for provider in _TABLE:
        if provider.model_prefixes and name.lower().startswith(provider.model_prefixes):
            return provider.name, name
    return None


def parse_model_name(name: str) -> tuple[str, str]:
    """Split a model string as `find_model` does. Raises UsageError, such as UnknownName."""
    if found := find_model(name):
        provider, model = found
        if not model:
            raise UsageError(f"which model of {provider}?", remedy=f"Write {provider}:MODEL.")
        return found
    from ._errors import make_name_error  # only a mistake needs it

    start, separator, model = _split_name(name.strip())
    prefixes = {each.name: each.model_prefixes for each in _TABLE if each.model_prefixes}
    alone = [each.name for each in _TABLE if each.default_model]
    raise make_name_error(start, separator + model, PROVIDERS, [*alone, *_SHORTCUTS], prefixes)


def _split_name(name: str) -> tuple[str, str, str]:
    separators = [position for mark in ":/" if (position := name.find(mark)) >= 0]
    end = min(separators, default=len(name))
    return name[:end], name[end : end + 1], name[end + 1 :].strip()


def find_own_server(environ: Mapping[str, str], name: str | None) -> Provider | None:
    """Find a provider for which the user has set a server address but no model.

    Such a server decides the default model. None if the address is the provider's own.
    """
    if name is None:
        local = (provider for provider in _TABLE if provider.is_local)
        return next((provider for provider in local if _has_url(provider, environ)), None)
    provider = _BY_ANY_NAME.get(name.partition(":")[0])
    if provider is None or _find_first_value(environ, ("MUDROOM_MODEL", *provider.model_vars)):
        return None
    url = get_base_url(provider, environ)
    is_own = _has_url(provider, environ) and not find_facts("", url).serves_responses
    return provider if is_own and provider.wire.startswith(("openai", "ollama")) else None


def choose_default_model(environ: Mapping[str, str]) -> str | None:
    """Choose the model string an environment suggests; None if it suggests none.

    In this order: MUDROOM_MODEL; a key of Anthropic, OpenAI or Google; an address of OpenAI or a
    local server; a key of another provider.
    """
    if name := _find_first_value(environ, ("MUDROOM_MODEL",)):
        return name
    first = [PROVIDERS[name] for name in ("anthropic", "openai", "google")]
    local = [provider for provider in _TABLE if provider.is_local]
    other = [provider for provider in _TABLE if provider not in first and not provider.is_local]
    candidates = [provider for provider in first if has_key(provider, environ)]
    candidates += [provider for provider in (first[1], *local) if _has_url(provider, environ)]
    candidates += [provider for provider in other if has_key(provider, environ)]
    return next(_suggest_models(candidates, environ), None)


def list_usable_models(environ: Mapping[str, str]) -> list[str]:
    """List the default models and shortcuts of the providers whose key or address is set."""
    usable = [
        provider for provider in _TABLE if has_key(provider, environ) or _has_url(provider, environ)
    ]
    names = list(_suggest_models(usable, environ))
    for provider in usable:
        names += [f"{provider.name}:{model}" for model in provider.shortcuts.values()]
    return list(dict.fromkeys(names))


def takes_images(provider: Provider, model: str) -> bool:
    return not provider.is_local and find_facts(model).takes_images


def has_key(provider: Provider, environ: Mapping[str, str]) -> bool:
    return bool(_find_first_value(environ, provider.key_vars + provider.token_vars))


def get_key(provider: Provider, environ: Mapping[str, str]) -> str:
    return _find_first_value(environ, provider.key_vars)


def find_key_variable(provider: Provider, environ: Mapping[str, str]) -> str:
    """Find the variable with the provider's key, else the first that may have it; "" for none."""
    names = provider.key_vars + provider.token_vars
    for name in names:
        if _find_first_value(environ, (name,)):
            return name
    return names[0] if names and not provider.is_local else ""


def get_url_variable(provider: Provider) -> str:
    return "OLLAMA_HOST" if provider.name == "ollama" else next(iter(provider.url_vars), "")


def get_base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    # OLLAMA_HOST follows Ollama's own notation: a host, a host and port, or a URL without `/v1`.
    url = _find_first_value(environ, provider.url_vars)
    if provider.name == "ollama" and url and not _find_first_value(environ, ("OLLAMA_BASE_URL",)):
        return _parse_ollama_host(url)
    return url or provider.base_url


def find_server(environ: Mapping[str, str], name: str) -> tuple[str, int] | None:
    from urllib.parse import urlsplit  # only for traces

    try:
        provider = PROVIDERS[parse_model_name(name)[0]]
        address = urlsplit(get_base_url(provider, environ))
        port = address.port or {"http": 80, "https": 443}[address.scheme]
    except (UsageError, KeyError, ValueError):
        return None
    return (address.hostname, port) if address.hostname else None


def get_ollama_window(environ: Mapping[str, str]) -> int:
    text = _find_first_value(environ, ("OLLAMA_CONTEXT_LENGTH",))
    return int(text) if text.isdecimal() and int(text) else _OLLAMA_WINDOW


def get_headers(provider: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    token = _find_first_value(environ, provider.token_vars)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for line in _find_first_value(environ, provider.header_vars).splitlines():
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip()] = value.strip()
    return headers


def _has_url(provider: Provider, environ: Mapping[str, str]) -> bool:
    return bool(_find_first_value(environ, provider.url_vars))


def _suggest_models(providers: Iterable[Provider], environ: Mapping[str, str]) -> Iterator[str]:
    for provider in providers:
        model = _find_first_value(environ, provider.model_vars)
        model = provider.shortcuts.get(model, model) or provider.default_model
        if model:
            yield f"{provider.name}:{model}"


def _find_first_value(environ: Mapping[str, str], names: Iterable[str]) -> str:
    """Find the first variable that is set and not blank; MUDROOM_NAME overrides NAME."""
    for name in names:
        for variable in (f"MUDROOM_{name}", name):
            if value := environ.get(variable, "").strip():
                return value
    return ""


def list_variables() -> list[str]:
    return [
        name
        for provider in _TABLE
        for names in (
            provider.key_vars,
            provider.token_vars,
            provider.url_vars,
            provider.model_vars,
            provider.header_vars,
        )
        for name in names
    ]


def _parse_ollama_host(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme = "http"
        rest = text
    address, _, path = rest.rstrip("/").partition("/")
    if address.startswith(":"):
        address = f"127.0.0.1{address}"
    # A server listens on 0.0.0.0, but a client cannot connect to it everywhere.
    address = address.replace("0.0.0.0", "127.0.0.1")
    # A bare IPv6 address ends in "]" and may look as if it had a port.
    has_port = address.rpartition(":")[2].isdigit() and not address.endswith("]")
    port = "" if has_port else {"https": ":443"}.get(scheme, ":11434")
    path = path.removesuffix("v1").rstrip("/")
    return f"{scheme}://{address}{port}{'/' + path if path else ''}"


def list_address_variables() -> list[str]:
    """List the variables with providers' addresses and default models; none is secret."""
    names = [name for provider in _TABLE for name in (*provider.url_vars, *provider.model_vars)]
    return [*names, *(f"MUDROOM_{name}" for name in names), "MUDROOM_MODEL"]


def list_header_variables() -> list[str]:
    return [name for provider in _TABLE for name in provider.header_vars]
