"""What people type who know other command lines: the words that Duly has for them.

A word for reading runs what is meant. A word for a change is answered by the command, and changes nothing. What ends or
deletes something is named only to who asked for an end.
"""

from collections.abc import Collection, Mapping

READS: Mapping[str, str] = {
    **dict.fromkeys(("list", "ls"), "list"),
    **dict.fromkeys(("show", "get", "describe", "inspect", "info", "view"), "show"),
}
"""Words that read something, and the verbs that they mean."""

OTHER_WORDS: Mapping[str, tuple[str, ...]] = {
    **{word: (verb,) for word, verb in READS.items()},
    **dict.fromkeys(("create", "new", "add", "put"), ("create", "add", "put", "schedule", "set")),
    **dict.fromkeys(("apply",), ("apply", "put", "set")),
    **dict.fromkeys(("edit", "change", "update", "patch", "modify"), ("update", "set")),
    **dict.fromkeys(("rm", "remove", "del", "delete"), ("delete", "revoke")),
    **dict.fromkeys(("start", "run", "submit", "enqueue", "trigger"), ("run", "schedule")),
    **dict.fromkeys(("retry", "rerun", "replay", "requeue"), ("redrive",)),
    **dict.fromkeys(("suspend", "hold", "disable"), ("pause",)),
    **dict.fromkeys(("unpause", "unsuspend", "enable", "continue"), ("resume",)),
    "log": ("logs",),
    "why": ("explain",),
    "signal": ("send",),
}
"""Verbs of other command lines; a noun that has no such verb takes the first of these that it has."""

ENDS: Collection[str] = frozenset({"terminate", "kill", "stop", "abort", "end", "reset"})
"""Words that mean less or more elsewhere than `cancel` does here: they are answered, and end nothing."""

OTHER_NOUNS: Mapping[str, str] = {
    **dict.fromkeys(("workflow", "job", "execution", "pod"), "tasks"),
    **dict.fromkeys(("worker", "node", "machine", "executor"), "hosts"),
    **dict.fromkeys(("function", "handler", "deployment", "task-definition"), "lambdas"),
    **dict.fromkeys(("cron", "cronjob", "timetable", "time-table", "periodic"), "tables"),
    **dict.fromkeys(("task-queue", "taskqueue", "topic"), "queues"),
    **dict.fromkeys(("dlq", "dead", "deadletter", "failure", "dead_letter"), "dead-letters"),
    **dict.fromkeys(("user", "role", "rolebinding", "permission", "acl"), "grants"),
    **dict.fromkeys(("secret", "key", "api-key", "apikey"), "tokens"),
    **dict.fromkeys(("limit", "semaphore", "quota", "rate-limit"), "resources"),
    **dict.fromkeys(("dag", "flow", "pipeline", "batch"), "graphs"),
    **dict.fromkeys(("holiday",), "calendars"),
    **dict.fromkeys(("circuit-breaker",), "breakers"),
    **dict.fromkeys(("pause-rule", "hold"), "gates"),
    **dict.fromkeys(("file", "artifact"), "attachments"),
    **dict.fromkeys(("signal",), "events"),
    **dict.fromkeys(("hpa", "autoscaling", "nodepool"), "pools"),
    **dict.fromkeys(("history", "log-audit"), "audit"),
    **dict.fromkeys(("configmap", "dynamicconfig"), "settings"),
}
"""Nouns of other command lines, in the singular, and those of Duly."""

ADVICE: Mapping[str, str] = {
    "apply": "each noun has its own: `duly graphs put FILE`, `duly grants apply FILE`, `duly register MODULE:APP`",
    **dict.fromkeys(
        ("create", "new", "add", "start", "submit", "enqueue", "send", "push", "trigger", "execute"),
        "`duly schedule LAMBDA PAYLOAD` makes a task, `duly tables create` a time table, `duly NOUN set NAME` the others",
    ),
    **dict.fromkeys(
        ("set", "edit", "patch", "change", "modify"), "the noun goes first: `duly NOUN set NAME ...`"
    ),
    **dict.fromkeys(
        ("terminate", "kill", "stop", "abort"),
        "`duly cancel TASK_ID` asks a task to stop; `duly cancel --help` says what to do if it does not",
    ),
    **dict.fromkeys(
        ("delete", "rm", "remove", "del"),
        "the noun goes first: `duly NOUN delete NAME`. Tasks stay until they have ended: `duly tasks --help`",
    ),
    "reset": "the noun goes first: `duly settings reset NAME`",
    **dict.fromkeys(
        ("retry", "rerun", "replay", "requeue"), "`duly redrive TASK_ID` runs a dead letter again"
    ),
    **dict.fromkeys(("suspend", "hold", "disable"), "`duly pause LAMBDA` lets the tasks of a lambda wait"),
    **dict.fromkeys(("unpause", "enable", "continue"), "`duly resume LAMBDA` ends a pause"),
    "signal": "`duly events send KEY VALUE` sends an event to the tasks that wait for it",
    "scale": "`duly pools set NAME --min N --max N` says how many workers of a pool may run",
    **dict.fromkeys(("drain", "cordon"), "a worker drains when it gets SIGTERM; `duly hosts` shows which do"),
    "rollout": "`duly lambdas ramp NAME VERSION 10%` sends a part of the tasks to a version",
    "watch": "`duly list --watch` shows the tasks again and again, `duly events watch` what happens to them",
    **dict.fromkeys(
        ("stats", "metrics", "dashboard"), "`duly top` shows what waits and runs, `duly ui` the console"
    ),
    **dict.fromkeys(("ps", "pods"), "`duly list --status processing` shows the tasks that run"),
    **dict.fromkeys(("web", "open"), "`duly ui` opens the console"),
    **dict.fromkeys(
        ("auth", "signin", "sign-in"),
        "`duly login` signs you in, `duly whoami` shows who you are; services set DULY_TOKEN",
    ),
    **dict.fromkeys(("signout", "sign-out"), "`duly logout` forgets your sign-in"),
    "version": "`duly --version` shows it",
    "operator": "`duly hosts` and `duly services` show what runs",
    **dict.fromkeys(
        ("cluster", "cluster-info", "doctor", "ping"), "`duly health` and `duly services` show what serves"
    ),
    **dict.fromkeys(("trace", "debug", "why"), "`duly explain TASK_ID` says why a task does not run"),
    "namespace": "a lambda's namespace is in its name: NAMESPACE/NAME; `duly lambdas` lists them",
    "serve": "`duly up MODULE:APP` runs all of Duly here, `duly server` the services alone",
    **dict.fromkeys(("new", "startproject", "scaffold"), "`duly init FOLDER` makes a project"),
}
"""What is said to a word that is no command, where something is to be said."""
