"""Runs of an open session that have no parent: prompts, tasks and scopes.

runner.py     starts them and waits for their reports
load_record.py   state of a resumed or forked session, from its record
opening.py    the first event of a session
requests.py   requests for runs, and values that callers get
briefs.py     makes their briefs
controls.py   messages to running runs, and ways to stop them
server_controls.py   states of MCP servers, and restarts
team_messages.py   messages to named children while no prompt runs
meter.py      limits of all runs of the session
"""
