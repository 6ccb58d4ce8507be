"""Compaction: keeps a run's requests smaller than its model's context window.

`shortening.py` is where the loop enters. It first clears old tool results, which needs no model. If
that is not enough, `compactor.py` replaces the conversation with the user's messages, rules and
recorded facts word for word, notes written by a summary run, and the last turns.
"""
