"""The same conversations with aiohttp alone: no checks, no journal, no retries."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp
import msgspec

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Floor:
    """A parent and its children without a harness.

    Arguments:
        url: of the model server.
        folder: folder with the notes that the children read.
    """

    def __init__(self, url: str, folder: str) -> None:
        self._url = url + "/v1/messages"
        self._folder = folder

    async def run(self, prompt: str) -> str:
        """Run the parent and return its last text."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._http:
            return await self._converse(prompt)

    async def _converse(self, prompt: str) -> str:
        kept = bytearray(b'{"model":"bench","max_tokens":8192,"stream":true,"messages":[')
        kept += _encode({"role": "user", "content": prompt})
        while True:
            blocks = await self._ask(bytes(kept) + b"]}")
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                return "".join(block["text"] for block in blocks)
            texts = await asyncio.gather(*(self._act(call) for call in calls))
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": text}
                for call, text in zip(calls, texts, strict=True)
            ]
            kept += (
                b","
                + _encode({"role": "assistant", "content": blocks})
                + b","
                + _encode({"role": "user", "content": results})
            )

    async def _act(self, call: dict[str, Any]) -> str:
        if call["name"] == "task":
            return await self._converse(call["input"]["prompt"])
        with open(os.path.join(self._folder, call["input"]["path"]), encoding="utf-8") as file:
            return file.read()

    async def _ask(self, body: bytes) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        grown: list[str] = []
        buffer = b""
        async with self._http.post(
            self._url, data=body, headers={"Content-Type": "application/json"}
        ) as answer:
            async for chunk in answer.content.iter_any():
                *events, buffer = (buffer + chunk).split(b"\n\n")
                for event in events:
                    _take(_decode(event[event.index(b"data: ") + 6 :]), blocks, grown)
        return blocks


def _take(event: dict[str, Any], blocks: list[dict[str, Any]], grown: list[str]) -> None:
    match event["type"]:
        case "content_block_start":
            blocks.append(event["content_block"])
            grown.clear()
        case "content_block_delta":
            grown.append(event["delta"].get("text") or event["delta"].get("partial_json", ""))
        case "content_block_stop" if blocks[-1]["type"] == "text":
            blocks[-1]["text"] = "".join(grown)
        case "content_block_stop":
            blocks[-1]["input"] = _decode("".join(grown))
        case _:
            pass
