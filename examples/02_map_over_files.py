"""Many files, a clean context for each, and a typed value from every one of them.

`MUDROOM_MODEL=anthropic:sonnet python examples/02_map_over_files.py` asks a real model; without it, a few lines of Python stand in.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from mudroom import Session
from mudroom.models.scripted import Request, ScriptedModel, call


@dataclass
class Module:
    """What is wanted of each file; the names and types are the schema the child must fill."""

    title: str
    functions: int


def stand_in(request: Request) -> Any:
    """Reads the file, then emits what it saw: what a language model would do."""
    if not request.turn:
        return [call("read", file_path=request.prompt.split()[1])]
    text = request.results[0].text
    first = text.split("\n")[0].split("\t")[1].strip('"')
    return [
        call("self.emitvalue", emit_variable_name="title", emit_variable_value=first),
        call(
            "self.emitvalue",
            emit_variable_name="functions",
            emit_variable_value=text.count("\tdef ") + text.count("\tasync def "),
        ),
    ]


async def main() -> None:
    here = Path(__file__).parent
    files = sorted(path.name for path in here.glob("0*.py"))
    prompts = [
        f"Read {file} and emit the first sentence of its docstring and how many functions it has."
        for file in files
    ]
    async with Session(
        model=os.environ.get("MUDROOM_MODEL") or ScriptedModel(stand_in), cwd=str(here)
    ) as session:
        reports = await session.map(prompts, outputs=Module, parallel=4)
    for file, report in zip(files, reports, strict=True):
        if not report.ok:
            print(f"{file}: {report.reason} {report.error}")
            continue
        assert_type(report.outputs.title, str)
        print(f"{file}: {report.outputs.functions} functions. {report.outputs.title}")


if __name__ == "__main__":
    asyncio.run(main())
