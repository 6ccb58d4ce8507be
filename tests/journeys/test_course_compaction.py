"""The prompts of the course's lesson on compaction, with a scripted model."""

from __future__ import annotations

import itertools

from mudroom._core.messages import ToolCallBlock
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import ask, each_language, make_call

READ_ALL = (
    "Read every Python file in the agents/ directory one by one",
    "逐个读取 agents/ 目录中的每个 Python 文件",
)
KEEP_READING = (
    "Keep reading files until compression triggers automatically",
    "继续读取文件, 直到自动触发压缩",
)
COMPACT = (
    "Use the compact tool to manually compress the conversation",
    "使用 compact 工具手动压缩对话",
)
FILES = 12
CLEARED = "cleared to save space"
NOTES = "NOTES-OF-THE-MODEL"


class Reader:
    """A script that reads the files one by one, until each prompt has what it asks for."""

    def __init__(self, language: int) -> None:
        self.language = language
        self.summaries = 0
        self._numbers = itertools.count()
        self._prompt = READ_ALL
        self._calls = 0

    def __call__(self, request: ServerRequest) -> ServerAnswer:
        last = str(request.messages[-1]["content"])
        if SUMMARY_PROMPT.partition(",")[0] in last:
            self.summaries += 1
            return NOTES
        for prompt in (READ_ALL, KEEP_READING, COMPACT):
            if self._prompt is not prompt and prompt[self.language] in last:
                self._prompt, self._calls = prompt, 0
        self._calls += 1
        if self._prompt is READ_ALL:
            return [self._read()] if self._calls <= FILES else "all are read"
        if self._prompt is KEEP_READING:
            is_over = self.summaries > 0 or self._calls > 40
            return "compacted" if is_over else [f"thought {'y' * 5_000}", self._read()]
        if self._calls <= 4:
            return [f"thought {'z' * 5_000}", self._read()]
        return [make_call("compact", focus="the files")] if self._calls == 5 else "done"

    def _read(self) -> ToolCallBlock:
        number = next(self._numbers) % FILES
        return make_call("read", file_path=f"agents/{number}.py")


@each_language
async def test_a_conversation_is_cleared_and_compacted(mudroom: Mudroom, language: int) -> None:
    mudroom.home.mkdir(exist_ok=True)
    (mudroom.home / "config.toml").write_text("context_window = 30000\n")
    (mudroom.project / "agents").mkdir()
    for number in range(FILES):
        text = "".join(f"value_{line} = {number}\n" for line in range(500))
        (mudroom.project / "agents" / f"{number}.py").write_text(text)
    reader = Reader(language)
    async with ModelServer(reader) as server:
        await ask(mudroom, server, READ_ALL[language])
        bodies = [request.body.decode() for request in server.requests]
        assert all(f"agents/{number}.py" in bodies[-1] for number in range(FILES))
        assert CLEARED not in bodies[0] and CLEARED in bodies[-1]
        await ask(mudroom, server, KEEP_READING[language], "-c")
        assert reader.summaries == 1
        body = server.requests[-1].body.decode()
        assert NOTES in body and KEEP_READING[language] in body and READ_ALL[language] in body
        await ask(mudroom, server, COMPACT[language], "-c")
        assert reader.summaries == 2
        assert COMPACT[language] in server.requests[-1].body.decode()
