"""Runs of an open session that have no parent: prompts, tasks and scopes.

runner.py          starts them and waits for their reports; makes their briefs
load_record.py     state of a resumed or forked session, from its record
requests.py        requests for runs, and values that callers get
task_calls.py      methods of a session that run tasks; tasks.py runs them
controls.py        messages to running runs, and ways to stop them
server_controls.py states of MCP servers, and restarts
team_messages.py   messages to named children while no prompt runs
meter.py           limits of all runs of the session
"""
