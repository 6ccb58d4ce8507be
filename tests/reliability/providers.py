"""Sessions whose providers are scripted servers on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mudroom import Session
from mudroom.testing.model_server import ModelServer

CLAUDE = "anthropic:claude-sonnet-4-5"
MODELS = {
    "anthropic": CLAUDE,
    "openai": "openai:gpt-5",
    "openai-responses": "openai-responses:gpt-5.1",
    "google": "google:gemini-flash-latest",
    "ollama": "ollama:qwen3:8b",
}
"""A model of each wire."""


def make_environ(url: str, key: str = "k") -> dict[str, str]:
    """Return the variables that lead all providers to one server."""
    bases = {"ANTHROPIC": url, "OLLAMA": url, "GEMINI": f"{url}/v1beta"}
    bases |= dict.fromkeys(("OPENAI", "MISTRAL", "DEEPSEEK"), f"{url}/v1")
    return {f"{name}_API_KEY": key for name in bases} | {
        f"{name}_BASE_URL": base for name, base in bases.items()
    }


def open_session(
    folder: Path, server: ModelServer, model: str = CLAUDE, *, key: str = "k", **options: Any
) -> Session:
    """Return a session in a folder; its record is in memory."""
    settings: dict[str, Any] = {"environ": make_environ(server.url, key), "journal": "memory"}
    settings |= {"cwd": str(folder), "home": str(folder / "home"), **options}
    return Session(model=model, **settings)
