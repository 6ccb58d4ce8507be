"""Child runs: the task tool, the brief of a child, the wait for its report, and named children.

task_tool.py      the tool with which a model starts a child
child_brief.py    the brief of a child: agent, tools, model, budget
start_child.py    the start, and the team of a run
child_run.py      a child that has started
merge.py          merges of the work of isolated children
merge_notes.py    what the parent reads beside merged files
returned_work.py  work that comes back: what the child reads and decides
checks.py         checks of merged files, and decisions
team.py           messages to named children, and from them to their parent
members.py        names of the children, and those that work
"""
