"""The MCP server: any MCP host runs tasks as children of mudroom, with budgets and a record.

tool_definitions.py   the tools as the host sees them
task_request.py       arguments of a task: checks, and limits
host_task.py          one task: its state, computed from its events
host_tasks.py         all tasks of the server: start, find, cancel
approver.py           questions to the user of the host
results.py            results of calls
protocol.py           the handlers for the package `mcp`
following.py          a call that waits for tasks, reports progress and asks the user
protocol_tasks.py     tasks of the protocol, with a file for each
task_methods.py       their methods
task_states.py        their states as hosts get them
task_notifications.py notifications about them
stdio.py              messages over pipes
first_answer.py       the answer to the first request, kept for the next start
stdio_claim.py        claim of stdin and stdout
http.py               messages over HTTP
host_tokens.py        tokens of hosts over HTTP
server.py             the session and its connections

Only protocol.py, following.py, task_methods.py, task_states.py, task_notifications.py, stdio.py and
http.py import the package.
"""
