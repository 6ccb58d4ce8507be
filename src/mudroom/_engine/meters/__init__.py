"""Meters: amounts that runs spend, compared with their limits.

meter.py        tokens, money, turns and children of one run, and the meters above it
account.py      one limit of a meter, and a model request with its permit
pool.py         the runs that share the limits of a meter, and what they are expected to need
run_timer.py    age and deadline of one run; the silence that ends a model call
request_gate.py the meters of the running runs, and the gate that lets a request start
"""
