"""Compaction: keeps the requests of a run smaller than the context window of its model.

`shortening.py` is the entry point of the loop. It first clears old tool results, which needs no
model. If that is not enough, `compactor.py` replaces the conversation: user's messages, rules and
recorded facts word for word, notes that a summary run writes, and the last turns.
"""
