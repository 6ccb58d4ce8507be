"""Meters: amounts that runs spend, compared with their limits.

meter.py         tokens, money, turns and children of one run
parent_meter.py  the meters above a run that another process executes
account.py       one limit of a meter: spent, granted, held
pool.py          the runs that share the limits of a meter, and what they are expected to need
run_timer.py     age and deadline of one run
registry.py      the meters of the running runs
request_plan.py  a model request before it starts, and its permit
request_gate.py  gate that lets a request start when the limits allow it
"""
