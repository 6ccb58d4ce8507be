"""The HTTP server: sessions for many users, with events in and a stream of events out.

server.py             the server: opens, serves, drains
routes.py, route.py   the table of paths; openapi.py describes it, access.py checks requests
proxy_login.py        owners that a proxy has logged in
session_routes.py     create, list and delete sessions, send events to them
event_stream.py       pages and streams of recorded events
information_routes.py  agents, health, metrics
hosted_sessions.py    the sessions at work in this process
hosted_session.py     one of them: it takes the prompts of its clients
questions.py          questions about tool calls, which clients answer
charges.py            amounts that sessions spend, charged to their owners
observed_store.py     a store that shows each event when it is durable
feed.py               the newest events of a session, for its streams
timed_writer.py       writes to clients that may read slowly
openai/               OpenAI's API as a second way to sessions
records/              what the server keeps beside the journals: tokens, owners, events of clients
setup.py              what the command line provides

The journals stay the only truth about runs. `aiohttp` is imported only here and in the viewer.
"""
