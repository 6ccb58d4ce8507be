"""What the server keeps beside the journals, in an SQLite file.

state_file.py   the file: its tables, and work on it in a thread
tokens.py       bearer tokens: only their digests are stored
sessions.py     owners and options of sessions
inputs.py       events that clients sent: each is used once, also across a crash
recorded_prompts.py  facts about the prompts of a session, from its journal
spending.py     amounts that owners have spent, day by day
"""
