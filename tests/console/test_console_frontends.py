"""The console of an installation that has several Frontends."""

from dataclasses import replace

from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from tests.fixtures.console import browse
from tests.fixtures.services import serve_frontend


async def test_each_of_several_frontends_gets_the_token_of_the_person_at_the_console(guarded, store):
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as second:
        both = replace(guarded, address=f"{guarded.address},{second.address}")
        async with browse(both) as browser:
            signed_in = await browser.sign_in("operator")
            pages = [await browser.get("/tasks") for _ in range(2)]  # calls take the Frontends in turn

    assert signed_in.status_code == 303
    assert [page.status_code for page in pages] == [200, 200]
    assert all("operator" in page.text for page in pages)
