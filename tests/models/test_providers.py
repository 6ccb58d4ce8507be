"""Tests of model strings and of the environment variables of providers."""

import pytest

from mudroom._adapters.models.providers import (
    PROVIDERS,
    choose_default_model,
    find_key_variable,
    find_server,
    get_base_url,
    get_headers,
    get_key,
    parse_model_name,
)
from mudroom.errors import UnknownName, UsageError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic/claude-opus-4-1", ("anthropic", "claude-opus-4-1")),
        ("claude-haiku-4-5", ("anthropic", "claude-haiku-4-5")),
        ("sonnet", ("anthropic", "claude-sonnet-5-5")),
        ("anthropic:haiku", ("anthropic", "claude-haiku-5-5")),
        ("gpt-6-sol", ("openai", "gpt-6-sol")),
        ("ft:gpt-4o:org", ("openai", "ft:gpt-4o:org")),
        ("gemini-2.5-pro", ("google", "gemini-2.5-pro")),
        ("google-gla:gemini-2.5-pro", ("google", "gemini-2.5-pro")),
        ("ollama:qwen3:8b", ("ollama", "qwen3:8b")),
        ("openrouter/anthropic/claude-sonnet-4.5", ("openrouter", "anthropic/claude-sonnet-4.5")),
        ("Groq:llama-3.3-70b", ("groq", "llama-3.3-70b")),
        ("grok-4", ("xai", "grok-4")),
        ("deepseek", ("deepseek", "deepseek-v4-flash")),
        ("anthropic", ("anthropic", "claude-sonnet-5-5")),
        (" claude-haiku-4-5 ", ("anthropic", "claude-haiku-4-5")),
    ],
)
def test_a_model_string_names_a_provider_and_its_model(
    name: str, expected: tuple[str, str]
) -> None:
    assert parse_model_name(name) == expected


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("antropic:claude", "anthropic"),
        ("sonet", "sonnet"),
        ("olama:qwen3:8b", "ollama"),
        ("gtp-5", "Did you mean gpt-5 or gpt-5"),
        ("claud-sonnet-4", "Did you mean claude-sonnet-4"),
        ("knead:x", "mudroom models lists the providers"),
        ("", "Write PROVIDER:MODEL"),
        ("qwen3", "Write PROVIDER:MODEL"),
    ],
)
def test_the_error_for_an_unknown_name_lists_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=nearest):
        parse_model_name(name)


def test_a_provider_without_default_model_needs_a_model() -> None:
    with pytest.raises(UsageError, match="Write vllm:MODEL"):
        parse_model_name("vllm")


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({}, None),
        ({"ANTHROPIC_API_KEY": " "}, None),
        ({"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_MODEL": "opus"}, "anthropic:claude-opus-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai:gpt-6.1-sol"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-5-mini"}, "openai:gpt-5-mini"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "qwen3"}, "openai:qwen3"),
        ({"GOOGLE_API_KEY": "k", "GEMINI_MODEL": "gemini-2.5-pro"}, "google:gemini-2.5-pro"),
        ({"OLLAMA_HOST": "127.0.0.1"}, "ollama:qwen3:8b"),
        ({"VLLM_BASE_URL": "http://127.0.0.1:8000/v1", "VLLM_MODEL": "m"}, "vllm:m"),
        (
            {"VLLM_BASE_URL": "http://127.0.0.1:8000/v1", "GROQ_API_KEY": "k"},
            "groq:openai/gpt-oss-120b",
        ),
        ({"MOONSHOT_API_KEY": "k"}, "moonshotai:kimi-k3.1-pro"),
        ({"MUDROOM_MODEL": "opus", "OPENAI_API_KEY": "k"}, "opus"),
    ],
)
def test_the_environment_selects_the_default_model(
    environ: dict[str, str], model: str | None
) -> None:
    assert choose_default_model(environ) == model
    if model:
        parse_model_name(model)


def test_each_default_model_string_can_be_parsed() -> None:
    for provider in PROVIDERS.values():
        if provider.default_model:
            assert parse_model_name(f"{provider.name}:{provider.default_model}") == (
                provider.name,
                provider.default_model,
            )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("0.0.0.0:11500", "http://127.0.0.1:11500"),
        (":11500", "http://127.0.0.1:11500"),
        ("http://box:11434/", "http://box:11434"),
        ("https://ollama.example", "https://ollama.example:443"),
        ("https://example.org/ollama", "https://example.org:443/ollama"),
        ("[::1]", "http://[::1]:11434"),
    ],
)
def test_ollama_host_has_the_notation_of_ollama(host: str, url: str) -> None:
    assert get_base_url(PROVIDERS["ollama"], {"OLLAMA_HOST": host}) == url


def test_base_urls_come_from_the_environment_or_the_table() -> None:
    assert (
        get_base_url(PROVIDERS["ollama"], {"OLLAMA_BASE_URL": "http://x/v1", "OLLAMA_HOST": "y"})
        == "http://x/v1"
    )
    assert get_base_url(PROVIDERS["openai"], {"OPENAI_API_BASE": "http://x/v1"}) == "http://x/v1"
    assert get_base_url(PROVIDERS["groq"], {}) == "https://api.groq.com/openai/v1"


def test_keys_are_read_from_their_variables() -> None:
    anthropic = PROVIDERS["anthropic"]
    google = PROVIDERS["google"]
    assert get_key(google, {"GOOGLE_API_KEY": "g"}) == "g"
    assert get_key(google, {"GOOGLE_API_KEY": "g", "GEMINI_API_KEY": "m"}) == "m"
    assert (
        get_key(anthropic, {"ANTHROPIC_API_KEY": "a", "MUDROOM_ANTHROPIC_API_KEY": "ours"})
        == "ours"
    )
    assert find_key_variable(google, {"GOOGLE_API_KEY": "g"}) == "GOOGLE_API_KEY"
    assert find_key_variable(anthropic, {}) == "ANTHROPIC_API_KEY"
    assert find_key_variable(PROVIDERS["ollama"], {}) == ""


def test_a_bearer_token_is_a_header() -> None:
    anthropic = PROVIDERS["anthropic"]
    token = {"ANTHROPIC_AUTH_TOKEN": "t"}
    assert get_headers(anthropic, token) == {"Authorization": "Bearer t"}
    custom = {"ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer other"}
    assert get_headers(anthropic, token | custom) == {"Authorization": "Bearer other"}


def test_custom_headers_are_lines_of_name_and_value() -> None:
    lines = "X-Team: mud: 7\n\nnonsense\nX-Other:1"
    assert get_headers(PROVIDERS["anthropic"], {"ANTHROPIC_CUSTOM_HEADERS": lines}) == {
        "X-Team": "mud: 7",
        "X-Other": "1",
    }


@pytest.mark.parametrize(
    ("model", "environ", "server"),
    [
        ("anthropic:x", {}, ("api.anthropic.com", 443)),
        ("anthropic:x", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080/a"}, ("127.0.0.1", 8080)),
        ("ollama:x", {}, ("127.0.0.1", 11434)),
        ("ollama:x", {"OLLAMA_HOST": "box"}, ("box", 11434)),
        ("openai:x", {"OPENAI_BASE_URL": "http://[::1]/v1"}, ("::1", 80)),
        ("openai:x", {"OPENAI_BASE_URL": "nonsense"}, None),
        ("openai:x", {"OPENAI_BASE_URL": "http://a:port"}, None),
        ("scripted", {}, None),
        ("unknown:x", {}, None),
    ],
)
def test_the_server_of_a_model_is_known(
    model: str, environ: dict[str, str], server: tuple[str, int] | None
) -> None:
    assert find_server(environ, model) == server
