"""The standard job in another framework: `python job_peer.py NAME PROVIDER MODEL URL HEADS`.

NAME is pydantic-ai, pydantic-ai-cache (with its setting `cache`) or openai-agents. HEADS is a file
with the system prompts and tools of the parent and of a child, so that all do the same job. The
program imports nothing of mudroom: it may run in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Head = dict[str, Any]
Tools = dict[str, Callable[..., Any]]


async def run_pydantic_ai(provider: str, model: str, url: str, heads: Head, cache: bool) -> None:
    from pydantic_ai import Agent, Tool
    from pydantic_ai.settings import ModelSettings

    backend: Any
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        backend = AnthropicModel(model, provider=AnthropicProvider(api_key="k", base_url=url))
    elif provider == "openai":
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        connection = OpenAIProvider(api_key="k", base_url=f"{url}/v1")
        backend = OpenAIResponsesModel(model, provider=connection)
    else:
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        backend = GoogleModel(model, provider=GoogleProvider(api_key="k", base_url=url))
    settings: Any = ModelSettings(max_tokens=8_000)
    if cache:
        settings["cache"] = True

    def make_agent(head: Head, run: Callable[[str], Callable[..., Any]]) -> Agent[Any, str]:
        tools = [
            Tool.from_schema(run(t["name"]), t["name"], t["description"], t["input_schema"])
            for t in head["tools"]
        ]
        return Agent(backend, instructions=head["system"], tools=tools, model_settings=settings)

    def run_child_tool(_: str) -> Callable[..., Any]:
        async def act(**_: Any) -> str:
            return heads["text"]

        return act

    def run_parent_tool(name: str) -> Callable[..., Any]:
        async def act(**arguments: Any) -> str:
            if name != "task":
                return heads["text"]
            child = make_agent(heads["child"], run_child_tool)
            return (await child.run(arguments["prompt"], usage_limits=None)).output

        return act

    await make_agent(heads["parent"], run_parent_tool).run("Do the job.", usage_limits=None)


async def run_openai_agents(_: str, model: str, url: str, heads: Head, __: bool) -> None:
    from openai import AsyncOpenAI

    agents: Any = import_module("agents")

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(api_key="k", base_url=f"{url}/v1")
    backend = agents.OpenAIResponsesModel(model, client)

    def make_agent(head: Head, is_parent: bool) -> Any:
        def make_tool(tool: Head) -> Any:
            async def act(_: Any, arguments: str) -> str:
                if not is_parent or tool["name"] != "task":
                    return heads["text"]
                child = make_agent(heads["child"], False)
                prompt = json.loads(arguments)["prompt"]
                return (await agents.Runner.run(child, prompt, max_turns=30)).final_output

            return agents.FunctionTool(
                name=tool["name"],
                description=tool["description"],
                params_json_schema=tool["input_schema"],
                on_invoke_tool=act,
                strict_json_schema=False,
            )

        tools: list[Any] = [make_tool(tool) for tool in head["tools"]]
        return agents.Agent(
            name="agent",
            instructions=head["system"],
            model=backend,
            tools=tools,
            model_settings=agents.ModelSettings(store=False),
        )

    await agents.Runner.run(make_agent(heads["parent"], True), "Do the job.", max_turns=30)


def _main() -> None:
    name, provider, model, url, path = sys.argv[1:]
    heads = json.loads(Path(path).read_text("utf-8"))
    run = run_openai_agents if name == "openai-agents" else run_pydantic_ai
    asyncio.run(run(provider, model, url, heads, name.endswith("-cache")))


if __name__ == "__main__":
    _main()
