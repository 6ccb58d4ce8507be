"""Meters: what runs spend, compared with their limits.

meter.py          tokens, money, turns and children of one run
run_timer.py   age and deadline of one run
registry.py    the meters of the running runs
"""
