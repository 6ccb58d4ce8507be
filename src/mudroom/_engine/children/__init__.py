"""Child runs: the task tool, the brief of a child, the wait for its report, and named children.

task_tool.py       the tool with which a model starts a child
task_arguments.py  its arguments
child_brief.py     the brief of a child: agent, tools, model, budget
child_run.py       a child that has started
merge.py           merges of the work of isolated children
team.py            messages to named children, and from them to their parent
members.py         names of the children, and those that work
next_runs.py       next runs of named children, which messages begin
shutdown.py        requests to stop
"""
