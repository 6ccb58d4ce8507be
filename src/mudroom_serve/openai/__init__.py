"""OpenAI's API as a second way to sessions: an agent is a model, a run is an answer.

requests.py         bodies: messages become one prompt, formats become outputs
prompt_follower.py  the text of one prompt while it runs, and its report
run_text.py         which text of a run clients read
chat.py             /v1/chat/completions: a session for each request
responses.py        /v1/responses: a session for each conversation
response_object.py  the object and the events that clients of responses read
"""
