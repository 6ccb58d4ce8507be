"""The MCP server: any MCP host runs tasks as children of mudroom, with budgets and a record.

tool_definitions.py   the tools as the host sees them
task_request.py       arguments of a task: checks, and limits
host_task.py          one task: its state, computed from its events
host_tasks.py         all tasks of the server: start, find, cancel
approver.py           questions to the user of the host
results.py            results of calls
protocol.py           the handlers for the package `mcp`
following.py          a call that waits for tasks, reports progress and asks the user
stdio.py              messages over pipes
stdio_claim.py        claim of stdin and stdout
server.py             the session and its connection

Only protocol.py, following.py and stdio.py import the package.
"""
