"""Child runs: the task tool, a child's brief, the wait for its report, and named children.

task_tool.py      the tool that starts a child
child_brief.py    the brief of a child: agent, tools, model, budget
start_child.py    starting a child, and a run's team
child_run.py      a started child
merge.py          merging the work of isolated children
merge_notes.py    what the parent reads besides merged files
returned_work.py  work that comes back: what the child reads and decides
checks.py         checks of merged files, and decisions
team.py           messages to named children, and from them to their parent
members.py        children's names, and which are working
"""
