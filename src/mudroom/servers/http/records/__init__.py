"""What the server keeps beside the journals, in an SQLite file and a folder of files.

state_file.py   the file: its tables, and work on it in a thread
tokens.py       bearer tokens: only their digests are stored
sessions.py     owners and options of sessions
inputs.py       events that clients sent: each is used once, also across a crash
recorded_prompts.py  facts about the prompts of a session, from its journal
file_store.py   the content of files, in a folder beside the state file
files.py        files of owners: inputs and results of batches
batches.py      batches: their inputs, progress and results
spending.py     amounts that owners have spent, day by day
"""
