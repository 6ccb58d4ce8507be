"""Meters: what runs spend, compared with their limits.

meter.py        tokens, money, turns and children of one run, and the meters above it
account.py      one limit of a meter, and a model request with its permit
pool.py         the runs that share a meter's limits, and what they are expected to need
run_timer.py    a run's age and deadline; the silence that ends a model call
request_gate.py meters of running runs, and the gate that admits requests
"""
