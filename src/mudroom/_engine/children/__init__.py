"""Child runs: the task tool, the brief of a child, and the wait for its report.

task_tool.py       the tool with which a model starts a child
task_arguments.py  its arguments
child_brief.py     the brief of a child: agent, tools, model, budget
child_run.py       a child that has started
"""
