"""Meters: amounts that runs spend, compared with their limits.

meter.py         tokens, money, turns and children of one run
run_timer.py     age and deadline of one run
registry.py      the meters of the running runs
request_plan.py  a model request before it starts, and its permit
request_gate.py  gate that lets a request start when the limits allow it
"""
