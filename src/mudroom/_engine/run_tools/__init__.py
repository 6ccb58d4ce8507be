"""Tools with which a model controls its run and the background work of it.

wait.py           waits for background work and messages, without a request
send_message.py   sends a message to a child that works
task_stop.py      stops background work
compact.py        shortens the conversation of the run
"""

from __future__ import annotations

from ..._core.tools import Tool
from .compact import COMPACT
from .send_message import SEND_MESSAGE
from .task_stop import TASK_STOP
from .wait import WAIT

RUN_TOOLS: dict[str, Tool] = {tool.name: tool for tool in (WAIT, SEND_MESSAGE, TASK_STOP, COMPACT)}
