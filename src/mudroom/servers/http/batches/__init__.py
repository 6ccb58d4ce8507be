"""Batches over HTTP, as clients of OpenAI's API send them: the lines of a file as one request each.

requests.py       lines of inputs: each is a request of `/v1/chat/completions` or `/v1/responses`
views.py          files and batches, as clients read them
file_routes.py    /v1/files
batch_routes.py   /v1/batches
hosted_batch.py   one batch at work, in the session that is hosted for it
"""
