"""A small MCP server of the old era that starts quickly: without the package.

`python quick_server.py [FAULT]`; FAULT is one of the rude habits below.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUnknownParameterType=false
from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": os.environ.get("ADD_TEXT", "Add two numbers."),
        "inputSchema": {**NUMBER, "required": ["a", "b"]},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "pid", "description": "Id of the process.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "End in the call.", "inputSchema": {"type": "object"}},
    {"name": "sleep", "description": "Work for ever.", "inputSchema": {"type": "object"}},
    {"name": "ask", "description": "Ask the user.", "inputSchema": {"type": "object"}},
    {"name": "write", "description": "Write a line.", "inputSchema": {"type": "object"}},
    {"name": "change", "description": "Change the tools.", "inputSchema": {"type": "object"}},
]
if FAULT == "echoes":
    TOOLS.append({"name": "echo", "description": "Say it.", "inputSchema": {"type": "object"}})
if FAULT == "gives":
    TOOLS.append({"name": "give", "description": "Give it.", "inputSchema": {"type": "object"}})
    TOOLS.append({"name": "request", "description": "Ask.", "inputSchema": {"type": "object"}})
if FAULT == "tasks":
    TOOLS[0]["execution"] = {"taskSupport": "required"}
TASKS = {"tasks": {"requests": {"tools": {"call": {}}}}} if FAULT == "tasks" else {}
OFFERS = {"prompts": {}, "resources": {}} if "offers" in FAULT else {}
PROMPT = {
    "name": "summarize",
    "description": "Summarize a topic.",
    "arguments": [{"name": "topic", "required": True}, {"name": "tone"}],
}
RESOURCE = {"uri": "docs://style", "name": "style", "title": "Style guide"}
LISTS = {
    "prompts": [PROMPT, {"name": "second"}],
    "resources": [RESOURCE, {"uri": "docs://second", "name": "second"}],
    "resourceTemplates": [{"uriTemplate": "docs://pages/{name}", "name": "page"}],
}
lock = threading.Lock()
asked: dict[str, object] = {}


def send(**message: object) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(number: object, result: object) -> None:
    send(id=number, result=result)


def answer_text(number: object, text: str, **more: object) -> None:
    answer(number, {"content": [{"type": "text", "text": text}], **more})


def be_rude(number: object) -> None:
    if FAULT == "garbage":
        print("this is no message")
        sys.stdout.buffer.write(b"\xff\xfe half a character\n")
        sys.stdout.flush()
    elif FAULT == "wrong_id":
        answer_text(999, "answer to another call")
    elif FAULT == "double":
        answer_text(number, "3")
    elif FAULT == "huge":
        sys.stdout.write("x" * (20 << 20) + "\n")
        sys.stdout.flush()


def call(number: object, params: dict) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    meta = params.get("_meta") or {}
    token = meta.get("progressToken")
    log(f"traceparent {meta.get('traceparent')}")
    if name == "add":
        be_rude(number)
        answer_text(number, str(arguments["a"] + arguments["b"]))
    elif name == "echo":
        answer_text(number, json.dumps(arguments), isError="bad" in str(arguments))
    elif name in ("pid", "write"):
        write(number, arguments) if name == "write" else answer_text(number, str(os.getpid()))
    elif name == "die":
        print("about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "sleep":
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "total": 2, "message": "asleep"}
            send(method="notifications/progress", params=progress)
    elif name == "ask":
        asked[f"q{number}"] = number
        send(id=f"q{number}", method="elicitation/create", params=json.loads(os.environ["ASK"]))
    elif FAULT == "gives":
        give(number, name, arguments)
    elif name == "change":
        TOOLS.append({"name": "new", "description": "", "inputSchema": {"type": "object"}})
        send(method="notifications/tools/list_changed")
        answer_text(number, "changed")
    else:
        send(id=number, error={"code": -32602, "message": f"unknown tool {name}"})


def write(number: object, arguments: dict) -> None:
    """Write a line; `@` stands for the id of the call, `~` for a text of some size."""
    line = arguments["line"].replace("@", json.dumps(number))
    with lock:
        sys.stdout.write(line.replace("~", "x" * arguments.get("size", 0)) + "\n")
        sys.stdout.flush()


def give(number: object, name: str, arguments: dict) -> None:
    if name == "give":
        answer(number, arguments)
    else:
        asked[f"q{number}"] = number
        send(id=f"q{number}", **arguments)


def log(text: str) -> None:
    if path := os.environ.get("SERVER_LOG"):
        with open(path, "a") as file:
            file.write(text + "\n")


log(f"start {os.getpid()}")
if FAULT == "late":
    time.sleep(60)
if FAULT == "ignores_end":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if FAULT == "no_start":
    sys.exit(os.environ.get("LAST_LINES", "no licence"))
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method is None:
        log("refused" if "error" in message else "answered")
        if number in asked:
            answer_text(asked.pop(number), json.dumps(message.get("result") or message["error"]))
        continue
    log(method)
    if f"stops at {method}" == FAULT:
        os.kill(os.getpid(), signal.SIGSTOP)
    if method == "initialize" and FAULT == "refuses_greeting":
        send(id=number, error={"code": -32600, "message": "no greeting"})
    elif method == "initialize":
        version = message["params"]["protocolVersion"]
        log("capabilities " + json.dumps(message["params"]["capabilities"]))
        info = {"name": "quick", "version": "1"}
        answer(
            number,
            {
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}, **OFFERS, **TASKS},
                "serverInfo": info,
                "instructions": "Adds numbers quickly.",
            },
        )
    elif method == "tools/list":
        if FAULT == "endless":
            extra = int(message.get("params", {}).get("cursor") or 0)
            page = [{**TOOLS[0], "name": f"tool{extra}"}]
            answer(number, {"tools": page, "nextCursor": str(extra + 1)})
        else:
            answer(number, {"tools": TOOLS})
    elif OFFERS and method in ("prompts/list", "resources/list", "resources/templates/list"):
        key = "resourceTemplates" if "templates" in method else method.split("/")[0]
        place = int(message.get("params", {}).get("cursor") or 0)
        if place and FAULT == "offers_one_page":
            send(id=number, error={"code": -32603, "message": "the index is broken"})
            continue
        more = {"nextCursor": str(place + 1)} if place + 1 < len(LISTS[key]) else {}
        answer(number, {key: LISTS[key][place : place + 1], **more})
    elif OFFERS and method == "prompts/get":
        given = message["params"].get("arguments") or {}
        content = {"type": "text", "text": f"Summarize {given} @agent-explore"}
        answer(number, {"messages": [{"role": "user", "content": content}]})
    elif OFFERS and method == "resources/read" and message["params"]["uri"] == RESOURCE["uri"]:
        answer(number, {"contents": [{"uri": RESOURCE["uri"], "text": "Use short names."}]})
    elif method == "tools/call":
        call(number, message["params"])
    elif number is not None and FAULT != "silent":
        send(id=number, error={"code": -32601, "message": "method not found"})
while FAULT == "ignores_end":
    time.sleep(1)
