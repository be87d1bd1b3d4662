"""Holds what an application declares against what the Frontend takes: by the Frontend's own checks, before it is asked."""

from duly.callbacks.app import App


def declaration_problem(app: App) -> str:
    """Return why the Frontend would refuse a lambda, a resource or a time table of an application; empty: it would not.

    What depends on others, such as another owner of the lambda, only the Frontend knows.
    """
    from duly_core.rpc.requests.problem import Problem  # only here: they are large
    from duly_core.traffic.slices import finish
    from duly_frontend.lambdas.declarations import policy_from_wire, reading_tables
    from duly_frontend.limits.declarations import read_declared

    for declared in app.lambdas():
        try:
            policy_from_wire(declared)
            read_declared(declared)
            finish(reading_tables(declared))
        except Problem as problem:
            return f"the lambda {declared.name!r} would be refused: {problem}"
    return ""
