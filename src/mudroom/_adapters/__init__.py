"""Adapters: one package for each port, or kind of outside program. Standard library only."""
