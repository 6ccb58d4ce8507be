"""SubAgentScope: title and author of a document, by an agent nobody has to watch.

`MUDROOM_MODEL=anthropic:sonnet python examples/03_document_extractor.py` asks a real model; without it, a few lines stand in.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from mudroom import (
    ContextState,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    RunConfig,
    Session,
    SubAgentScope,
    ToolConfig,
)
from mudroom.models.scripted import Request, ScriptedModel, call


def stand_in(request: Request) -> Any:
    """What a language model would do: read the document, then emit what it found."""
    if not request.results:
        found = re.search(r"author from (\S+)\.", request.system)
        return [call("read", file_path=found[1] if found else "")]
    lines = [line.split("\t")[1] for line in request.results[0].text.split("\n") if "\t" in line]
    title = next(line.removeprefix("# ") for line in lines if line.startswith("# "))
    author = next(line.removeprefix("By ") for line in lines if line.startswith("By "))
    return [
        call("self.emitvalue", emit_variable_name="title", emit_variable_value=title),
        call("self.emitvalue", emit_variable_name="author", emit_variable_value=author),
    ]


async def main() -> None:
    here = Path(__file__).parent
    async with Session(
        model=os.environ.get("MUDROOM_MODEL") or ScriptedModel(stand_in), cwd=str(here)
    ) as session:
        scope = await SubAgentScope.create(
            "doc-extractor",
            session,
            PromptConfig(system_prompt="Extract title and author from ${doc_path}."),
            ModelConfig(model="inherit", temp=0.2, top_p=0.9),
            RunConfig(max_time_minutes=2, max_turns=8),
            tool_config=ToolConfig(tools=["read", "grep"]),
            output_config=OutputConfig(
                outputs={"title": "the document's title", "author": "its author"}
            ),
            on_message=print,
        )
        await scope.run_non_interactive(ContextState(doc_path="documents/on-mud.md"))
    print(scope.output.emitted_vars, scope.output.terminate_reason)


if __name__ == "__main__":
    asyncio.run(main())
