"""Opens and holds a session: its options, the objects that serve it, and its root runs."""
