"""Tools of servers in one run.

toolset.py     which tools the model gets in full; the tools mcp_find and mcp_call
run_servers.py   the servers of a run whose agent has servers of its own
catalogue.py   the tools as texts
user_input.py   questions to the user during a call
"""
