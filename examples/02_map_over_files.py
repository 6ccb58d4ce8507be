"""Many files, a clean context for each, and a typed value from each of them.

`MUDROOM_MODEL=anthropic:sonnet python examples/02_map_over_files.py` uses a real model; without
the variable a script plays the model.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

from mudroom import Session
from mudroom.testing import Answer, Request, ScriptedModel, call


@dataclass
class Module:
    """The values each child must emit; names and types are their schema."""

    title: str
    functions: int


def play_model(request: Request) -> Answer:
    """Read the file, then emit its values, as a language model would."""
    if not request.turn:
        return [call("read", file_path=request.prompt.split()[1])]
    text = request.results[0].text
    title = text.split("\n")[0].split("\t")[1].strip('"')
    functions = text.count("\tdef ") + text.count("\tasync def ")
    return [
        call("self.emitvalue", emit_variable_name="title", emit_variable_value=title),
        call("self.emitvalue", emit_variable_name="functions", emit_variable_value=functions),
    ]


async def main() -> None:
    folder = Path(__file__).parent
    files = sorted(path.name for path in folder.glob("0*.py"))
    task = "Read {} and emit the first sentence of its docstring and its number of functions."
    model = os.environ.get("MUDROOM_MODEL") or ScriptedModel(play_model)
    async with Session(model=model, cwd=str(folder)) as session:
        prompts = [task.format(file) for file in files]
        reports = await session.map(prompts, outputs=Module, parallel=4)
    for file, report in zip(files, reports, strict=True):
        if not report.ok:
            print(f"{file}: {report.reason} {report.error}")
            continue
        assert_type(report.outputs, Module)
        print(f"{file}: {report.outputs}")


if __name__ == "__main__":
    asyncio.run(main())
