"""`duly demo`: Duly on real input, with an Executor killed on the way, and every result checked.

In order: `files` finds the input, `setting` makes a place for the run, `workload` says which file is due when,
`course` runs it, `killing` kills an Executor, `application` runs in the callback processes and keeps the
`journal`, `checker` judges, `figures` counts, `report` prints.
"""
