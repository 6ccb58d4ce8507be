"""Folds of events: run tree, transcript, ledger, session summary, text made safe for screens."""
