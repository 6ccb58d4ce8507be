"""Refusals of providers: what they mean, and what to change in the next request.

classifier.py  the meaning of any refusal: wait and for how long, stop, or try something else
overflow.py    refusals of requests that are too long
repairs.py     another request that avoids what was refused
history.py     the conversation without the part that was refused
"""
