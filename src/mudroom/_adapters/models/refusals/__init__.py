"""Providers' refusals: their meaning, and changes for the next request.

classifier.py  the meaning of any refusal: wait (and how long), stop, or try something else
overflow.py    refusals of overlong requests
repairs.py     changes to a request that avoid the refused part
history.py     the conversation without the refused part
"""
