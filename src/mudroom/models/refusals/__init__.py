"""Refusals of providers, read: what to change in the next request, and what a model accepts.

repairs.py   another request that avoids what was refused
overflow.py  refusals of requests that are too long
"""
