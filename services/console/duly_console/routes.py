"""Which address is served by which page."""

from duly_console.guard import MakePage
from duly_console.pages import (
    attachments,
    audit,
    dead_letters,
    event_answers,
    fleet,
    gates,
    graphs,
    lambdas,
    notifications,
    output,
    overview,
    payloads,
    pools,
    problems,
    resources,
    search,
    sessions,
    settings,
    tasks,
    time_tables,
    trends,
)

PAGES: tuple[tuple[str, str, MakePage], ...] = (
    ("/", "overview", overview.show),
    ("/live", "live", overview.live),
    ("/trends", "trends", trends.figures),
    ("/search", "search", search.show),
    ("/search.json", "search", search.as_json),
    ("/tasks", "tasks", tasks.show_list),
    ("/tasks/{task_id}", "task", tasks.show),
    ("/dead-letters", "dead letters", dead_letters.show_list),
    ("/lambdas", "lambdas", lambdas.show_list),
    ("/lambdas/{name:path}", "lambda", lambdas.show),
    ("/sessions", "sessions", sessions.show_list),
    ("/sessions/session", "session", sessions.show),
    ("/graphs", "graphs", graphs.show_list),
    ("/graphs/{graph_id}", "graph", graphs.show),
    ("/time-tables", "time tables", time_tables.show_list),
    ("/time-tables/{name}", "time table", time_tables.show),
    ("/queues", "queues", fleet.show_queues),
    ("/hosts", "hosts", fleet.show_hosts),
    ("/hosts/{host_id}", "host", fleet.show_host),
    ("/pools", "pools", pools.show_list),
    ("/pools/{name}", "pool", pools.show),
    ("/gates", "gates", gates.show_list),
    ("/resources", "resources", resources.show_list),
    ("/notifications", "notifications", notifications.show_list),
    ("/settings", "settings", settings.show_list),
    ("/audit", "audit", audit.show_list),
)
"""What is read: path, name in metrics, function."""

DOWNLOADS: tuple[tuple[str, str, MakePage], ...] = (
    ("/attachments/{ticket}", "attachment", attachments.download),
    ("/output/{ticket}", "output", output.show),
)
"""What links lead to that expire: files, and output as it goes on."""

CHANGES: tuple[tuple[str, str, MakePage], ...] = (
    ("/tasks/{task_id}/cancel", "cancel task", tasks.cancel),
    ("/tasks/{task_id}/kill", "kill task", tasks.kill),
    ("/tasks/{task_id}/redrive", "redrive task", tasks.redrive),
    ("/tasks/{task_id}/answer", "answer task", event_answers.answer),
    ("/tasks/{task_id}/reveal", "reveal task", payloads.reveal),
    ("/problems/unblock", "unblock sessions", problems.unblock),
    ("/problems/kill", "kill tasks of a problem", problems.kill),
    ("/dead-letters/redrive", "redrive", dead_letters.redrive),
    ("/lambdas/{name:path}/change", "change lambda", lambdas.change),
    ("/lambdas/{name:path}/pause", "pause lambda", lambdas.pause),
    ("/lambdas/{name:path}/resume", "resume lambda", lambdas.resume),
    ("/sessions/unblock", "unblock session", sessions.unblock),
    ("/graphs/{graph_id}/cancel", "cancel graph", graphs.cancel),
    ("/time-tables/{name}/pause", "pause time table", time_tables.pause),
    ("/time-tables/{name}/resume", "resume time table", time_tables.resume),
    ("/pools/{name}/limits", "change pool", pools.set_limits),
    ("/gates/put", "set gate", gates.put),
    ("/gates/remove", "remove gate", gates.remove),
    ("/gates/remove-breaker", "remove breaker", gates.remove_breaker),
    ("/resources/capacity", "change resource", resources.set_capacity),
    ("/notifications/test", "test notifications", notifications.send_test),
    ("/settings/change", "change setting", settings.change),
    ("/settings/reset", "reset setting", settings.reset),
)
"""What changes something, or is written into the audit log."""
