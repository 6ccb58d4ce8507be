"""Tools with which a model controls the background work of its run.

wait.py           waits for background work and messages, without a request
send_message.py   sends a message to a child that works
task_stop.py      stops background work
"""

from __future__ import annotations

from ..._core.tools import Tool
from .send_message import SEND_MESSAGE
from .task_stop import TASK_STOP
from .wait import WAIT

RUN_TOOLS: dict[str, Tool] = {tool.name: tool for tool in (WAIT, SEND_MESSAGE, TASK_STOP)}
"""The tools by name. Runs have them together with `task`."""
