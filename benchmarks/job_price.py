"""Price of a standard job: a parent with one wide turn of 25 children, each with 10 turns.

The server's caches are simulated and the prices are those of the table; the same script answers
mudroom and other frameworks, which get mudroom's system prompts and tools.

A provider that caches on its own serves all of them alike: what remains is output, and input that
is sent for the first time, which nobody can save, and reading the conversation in each turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom import Session, ToolCallBlock, Usage
from mudroom._adapters.models.model_facts import find_facts, forget_learnt_facts, remember_facts
from mudroom._adapters.models.pricing import calculate_cost
from mudroom._adapters.models.providers import PROVIDERS
from mudroom.testing import Fault, ModelServer, PromptCache, ServerRequest

from .processes import Bench
from .rows import Row

CHILDREN = 25
TURNS = 10
# Turns of the parent before and after the wide one, and seconds of each turn.
_PARENT_TURNS = 3
_SECONDS = 20.0
_FILE_SIZE = 2_000
# Provider, model string, and the variable with the address of its server.
_MODELS = {
    "anthropic": ("anthropic:claude-sonnet-5-5", "ANTHROPIC", ""),
    "openai": ("openai-responses:gpt-6.1-sol", "OPENAI", "/v1"),
    "google": ("google:gemini-flash-latest", "GEMINI", "/v1beta"),
}
_PEERS = ("pydantic-ai", "pydantic-ai-cache", "openai-agents")


class Job:
    """The script of the job, and what its requests cost.

    Arguments:
        provider: a key of the models.

    Attributes:
        usd: price of all requests so far in US dollars, each priced alone, as prices may depend on
            the length of a request.
        least_usd: price of the output and of each input token once, as if repeating it cost
            nothing.
    """

    def __init__(self, provider: str) -> None:
        self.model = _MODELS[provider][0]
        dialect = "openai-responses" if provider == "openai" else provider
        self._cache = PromptCache(dialect, writes_cost=provider == "openai")
        self.usage = Usage()
        self.usd = 0.0
        self.least_usd = 0.0
        self.requests: list[ServerRequest] = []
        self._sizes: dict[bytes, int] = {}

    def answer(self, request: ServerRequest) -> Fault:
        """Answer as the script says, and charge the request."""
        self.requests.append(request)
        is_parent = "task" in request.tools
        turn = request.turn
        if is_parent and turn == _PARENT_TURNS:
            blocks: Any = tuple(
                ToolCallBlock(f"t{n}", "task", {"prompt": f"Child {n}: read the file 10 times."})
                for n in range(CHILDREN)
            )
        elif turn < (2 * _PARENT_TURNS if is_parent else TURNS):
            call = ToolCallBlock(f"r{request.number}", "read", {"file_path": f"{turn}.txt"})
            blocks = (call,)
        else:
            blocks = ("All is well here. " * 20,)
        # The parent waits for its children, whose turns take place at the same time.
        waited = TURNS + 1 if is_parent and turn > _PARENT_TURNS else 0
        now = _SECONDS * (turn + waited + (0 if is_parent else _PARENT_TURNS + 1))
        usage = self._cache.send(request.body, now, request.model)
        usage = replace(usage, output_tokens=sum(len(str(block)) for block in blocks) // 4)
        self.usage += usage
        self.usd += self._price(usage)
        child = None if is_parent else re.search(rb"Child \d+", request.body)
        name = child[0] if child else b""
        new = Usage(usage.input_tokens - self._sizes.get(name, 0), usage.output_tokens)
        self.least_usd += self._price(new)
        self._sizes[name] = usage.input_tokens
        return Fault(blocks=blocks, usage=usage)

    def _price(self, usage: Usage) -> float:
        """Return the price of one request in US dollars."""
        price = calculate_cost(self.model, usage)
        assert price is not None
        return price


async def run_mudroom(provider: str, folder: str) -> Job:
    """Run the job in mudroom, as it treats the provider's own address."""
    job = Job(provider)
    model, name, path = _MODELS[provider]
    own = PROVIDERS[model.partition(":")[0]].base_url
    async with ModelServer(job.answer) as server:
        url = f"{server.url}{path}"
        short = model.partition(":")[2]
        remember_facts(short, url, find_facts(short, own))
        environ = {f"{name}_API_KEY": "k", f"{name}_BASE_URL": url}
        async with Session(
            model=model, environ=environ, cwd=folder, home=f"{folder}/home", journal="memory"
        ) as session:
            report = await session.run("Do the job.")
    forget_learnt_facts()
    assert report.ok, report.error
    return job


async def run_peer(name: str, provider: str, heads: str) -> Job | None:
    """Run the job in another framework; None if that is not installed."""
    python = sys.executable
    if name == "openai-agents":
        python = os.environ.get("OPENAI_AGENTS_PYTHON", "")
        if provider != "openai" or not python:
            return None
    elif not find_spec("pydantic_ai"):
        return None
    job = Job(provider)
    async with ModelServer(job.answer) as server:
        model = job.model.partition(":")[2]
        script = str(Path(__file__).with_name("job_peer.py"))
        arguments = [python, script, name, provider, model, server.url, heads]
        process = await asyncio.create_subprocess_exec(
            *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{name} failed: {errors.decode()[-2_000:]}")
    return job


def extract_heads(job: Job) -> dict[str, Any]:
    """Return the system prompts and tools of mudroom's requests, and the result of a read."""
    heads: dict[str, Any] = {}
    for request in job.requests:
        body = request.json
        kind = "parent" if "task" in request.tools else "child"
        tools = [
            {key: tool[key] for key in tool if key != "cache_control"} for tool in body["tools"]
        ]
        heads[kind] = {"system": body["system"][0]["text"], "tools": tools}
        for message in body["messages"]:
            for block in message["content"]:
                if block["type"] == "tool_result" and len(block.get("content", "")) > _FILE_SIZE:
                    heads["text"] = block["content"]
    return heads


def measure_prices(_: Bench, __: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            Path(folder, f"{turn}.txt").write_text("word " * (_FILE_SIZE // 5), "utf-8")
        heads = Path(folder, "heads.json")
        for provider in _MODELS:
            own = asyncio.run(run_mudroom(provider, folder))
            if provider == "anthropic":
                heads.write_text(json.dumps(extract_heads(own)), "utf-8")
            share = own.usage.cache_read_tokens / own.usage.input_tokens
            yield Row(f"price of the standard job, {own.model}", "$", own.usd, own.usd)
            yield Row(f"share read from the cache, {provider}", "", share, 0.6, 0.8, least=True)
            least = own.least_usd / own.usd
            yield Row(f"share of the price that nobody can save, {provider}", "", least, least)
            peers = {name: asyncio.run(run_peer(name, provider, str(heads))) for name in _PEERS}
            for name, job in peers.items():
                if job:
                    title = f"price of the standard job, {provider}, beside {name}"
                    yield Row(title, "$", own.usd, job.usd, 0.4 * job.usd, job.usd)
