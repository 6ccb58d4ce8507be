"""SubAgentScope: title and author of a document, by an agent that never asks.

`MUDROOM_MODEL=anthropic:sonnet python examples/03_document_extractor.py` uses a real model;
without the variable a script plays the model.
"""

import asyncio
import os
from pathlib import Path

from mudroom import Session
from mudroom.scope import (
    ContextState,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    RunConfig,
    SubAgentScope,
    ToolConfig,
)
from mudroom.testing import Answer, Request, ScriptedModel, call


def play_model(request: Request) -> Answer:
    """Read the document, then emit title and author, as a language model would."""
    if not request.results:
        return [call("read", file_path="documents/on-mud.md")]
    lines = [line.split("\t")[1] for line in request.results[0].text.split("\n") if "\t" in line]
    title = next(line.removeprefix("# ") for line in lines if line.startswith("# "))
    author = next(line.removeprefix("By ") for line in lines if line.startswith("By "))
    return [
        call("self.emitvalue", emit_variable_name="title", emit_variable_value=title),
        call("self.emitvalue", emit_variable_name="author", emit_variable_value=author),
    ]


async def main() -> None:
    model = os.environ.get("MUDROOM_MODEL") or ScriptedModel(play_model)
    async with Session(model=model, cwd=str(Path(__file__).parent)) as session:
        scope = await SubAgentScope.create(
            "doc-extractor",
            session,
            PromptConfig(system_prompt="Extract title and author from ${doc_path}."),
            ModelConfig(model="inherit", temp=0.2, top_p=0.9),
            RunConfig(max_time_minutes=2, max_turns=8),
            ToolConfig(tools=["read", "grep"]),
            OutputConfig(outputs={"title": "the document's title", "author": "its author"}),
            on_message=print,
        )
        await scope.run_non_interactive(ContextState(doc_path="documents/on-mud.md"))
    print(scope.output.emitted_vars, scope.output.terminate_reason)


if __name__ == "__main__":
    asyncio.run(main())
