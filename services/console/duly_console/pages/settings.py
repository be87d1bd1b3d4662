"""Settings that are changed while Duly runs."""

from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.page import Page, check
from duly_wire.v1 import settings_pb2


async def show_list(page: Page) -> Response:
    """List the settings with value, default, source and effect."""
    answer: settings_pb2.ListSettingsResponse = await page.call(
        page.stubs.settings.ListSettings, settings_pb2.ListSettingsRequest()
    )
    return page.render(
        "settings.html",
        settings=answer.settings,
        by_operator=settings_pb2.SETTING_SOURCE_OPERATOR,
        can_change=page.viewer.may_everywhere("OPERATE"),
    )


async def change(page: Page) -> Response:
    """Set a value for every process."""
    name, value = page.form.get("name", ""), page.form.get("value", "").strip()
    before = await _value(page, name)
    if page.form.get("was", before) != before:
        raise PageError(
            409,
            f"Somebody changed {name} to {before} since this page was loaded. Nothing was changed: load the page again.",
        )
    if not page.is_confirmed:
        text = f"{name} is {before} now, and becomes {value}, for every process, also for those that start later."
        return page.confirm(
            "Change this setting?", text, "Change", "/settings", name=name, value=value, was=before
        )
    request = settings_pb2.SetSettingsRequest(settings=[settings_pb2.NewSetting(name=name, value=value)])
    answer: settings_pb2.SetSettingsResponse = await page.call(page.stubs.settings.SetSettings, request)
    check(answer.results[0].error)
    return page.redirect("/settings", f"{name} is {answer.results[0].setting.value} now.")


async def reset(page: Page) -> Response:
    """Let each process take the value of its own file or environment again."""
    name = page.form.get("name", "")
    if not page.is_confirmed:
        text = f"Each process uses {name} from its own file or environment again, or the default."
        return page.confirm("Reset this setting?", text, "Reset", "/settings", name=name)
    request = settings_pb2.ResetSettingsRequest(names=[name])
    answer: settings_pb2.ResetSettingsResponse = await page.call(page.stubs.settings.ResetSettings, request)
    check(answer.results[0].error)
    return page.redirect("/settings", f"{name} was reset.")


async def _value(page: Page, name: str) -> str:
    answer: settings_pb2.ListSettingsResponse = await page.call(
        page.stubs.settings.ListSettings, settings_pb2.ListSettingsRequest()
    )
    return next((each.value for each in answer.settings if each.name == name), "unknown")
