"""Projections of events: run tree, transcript, ledger, session summary; text for screens."""
