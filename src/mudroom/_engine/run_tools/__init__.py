"""Tools that let a model control its run and its background work.

wait.py           waits for background work and messages, without a request
send_message.py   sends a message to a working child
task_stop.py      stops background work
compact.py        shortens the run's conversation
"""

from __future__ import annotations

from ..._core.tools import Tool
from .compact import COMPACT
from .send_message import SEND_MESSAGE
from .task_stop import TASK_STOP
from .wait import WAIT

RUN_TOOLS: dict[str, Tool] = {tool.name: tool for tool in (WAIT, SEND_MESSAGE, TASK_STOP, COMPACT)}
