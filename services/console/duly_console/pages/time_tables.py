"""Time tables: the list, and one with its next ticks; pause and resume."""

from starlette.responses import Response

from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_wire.v1 import time_tables_pb2

_NEXT_TICKS = 10


async def show_list(page: Page) -> Response:
    """List time tables by name."""
    lambda_name = page.asked("lambda")
    request = time_tables_pb2.ListTimeTablesRequest(
        cell=page.asked("cell"), page_size=PAGE_SIZE, page_token=page.asked("page")
    )
    setattr(request, "lambda", lambda_name)
    answer: time_tables_pb2.ListTimeTablesResponse = await page.call(
        page.stubs.time_tables.ListTimeTables, request
    )
    said = {"lambda": lambda_name, "cell": page.asked("cell")}
    return page.render(
        "time_tables.html",
        tables=answer.tables,
        wanted=said,
        cells=answer.cell_names,
        first=query("/time-tables", **said) if page.asked("page") else "",
        next=query("/time-tables", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )


async def show(page: Page) -> Response:
    """Show a time table. Its payload is not shown: `duly tables show` does."""
    name = page.request.path_params["name"]
    request = time_tables_pb2.GetTimeTablesRequest(names=[name], next=_NEXT_TICKS)
    answer: time_tables_pb2.GetTimeTablesResponse = await page.call(
        page.stubs.time_tables.GetTimeTables, request
    )
    (result,) = answer.results
    check(result.error)
    if result.table.table.calendar:  # what it leaves out, too
        request = time_tables_pb2.GetTimeTablesRequest(names=[name], planned=_NEXT_TICKS)
        answer = await page.call(page.stubs.time_tables.GetTimeTables, request)
        (result,) = answer.results
        check(result.error)
    lambda_name = getattr(result.table.table, "lambda")
    return page.render(
        "time_table.html",
        state=result.table,
        table=result.table.table,
        can_change=page.viewer.may("REGISTER", lambda_name),
    )


async def pause(page: Page) -> Response:
    """Pause a time table."""
    name = page.request.path_params["name"]
    note = page.form.get("note", "").strip()
    back = f"/time-tables/{name}"
    if not page.is_confirmed:
        text = f"Time table {name} schedules nothing until it is resumed. Ticks during the pause are skipped."
        return page.confirm("Pause this time table?", text, "Pause", back, note=note)
    request = time_tables_pb2.PauseTimeTablesRequest(names=[name], note=note)
    answer: time_tables_pb2.PauseTimeTablesResponse = await page.call(
        page.stubs.time_tables.PauseTimeTables, request
    )
    check(answer.results[0].error)
    return page.redirect(back, "The time table is paused.")


async def resume(page: Page) -> Response:
    """Resume a time table."""
    name = page.request.path_params["name"]
    back = f"/time-tables/{name}"
    if not page.is_confirmed:
        text = f"Time table {name} schedules again, with its first tick from now on."
        return page.confirm("Resume this time table?", text, "Resume", back)
    request = time_tables_pb2.ResumeTimeTablesRequest(names=[name])
    answer: time_tables_pb2.ResumeTimeTablesResponse = await page.call(
        page.stubs.time_tables.ResumeTimeTables, request
    )
    check(answer.results[0].error)
    return page.redirect(back, "The time table is resumed.")
