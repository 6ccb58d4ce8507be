"""Tool calls of one answer.

run_calls.py         entry point of the loop: intent, action and result of each call
schedule.py          order of the calls: in parallel where that is safe
prepared_call.py     lookup of the tool and check of its arguments
permission_check.py  permission by rules, mode, hook and approver
execution.py         the tool runs, the files that it changes are observed
"""
