"""`duly whoami`, `grant`, `tokens`, `audit` and `db operator`, against a Frontend that asks who calls."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.roles import Role
from duly_core.access.settings import AuthSettings
from tests.access.test_access import give_token
from tests.fixtures.identity_provider import CLIENT_ID
from tests.fixtures.services import serve_frontend

OPERATOR = "duly_ann_secret"


@pytest.fixture
async def served(store, monkeypatch):
    monkeypatch.setattr("duly_core.access.cache.FRESH", timedelta())
    await give_token(store, OPERATOR, "ann")
    await access.add_grants(store, [Grant("ann", Role.OPERATOR, "*")])
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as frontend:
        yield frontend


@pytest.fixture
def run(served):
    async def run_command(*arguments, token=OPERATOR, columns="200"):
        environment = {"DULY_ADDRESS": served.address, "DULY_TOKEN": token, "COLUMNS": columns}
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=environment)

    return run_command


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_whoami_says_the_principal_and_its_roles(run):
    shown, as_json = await run("whoami"), await run("whoami", "--json")

    assert shown.stdout.splitlines() == ["ann", "  operator of *"]
    assert objects(as_json) == [
        {
            "principal": "ann",
            "grants": [{"principal": "ann", "role": "operator", "pattern": "*"}],
            "groups": [],
        }
    ]


async def test_whoami_says_which_group_gives_a_role(identity_provider, store):
    identity_provider.person["groups"] = ["sre", *(f"team-{number:02}" for number in range(25))]
    await access.add_grants(
        store, [Grant("group:sre", Role.OPERATOR, "*"), Grant("oidc:ann-1", Role.CLIENT, "mail.*")]
    )
    settings = AuthSettings(mode="required", oidc_issuer=identity_provider.issuer, oidc_audience=CLIENT_ID)
    authorizer = Authorizer(AccessCache(store), open_jwt_reader(settings))
    async with serve_frontend(store, authorizer=authorizer) as served:
        environment = {
            "DULY_ADDRESS": served.address,
            "DULY_TOKEN": identity_provider.id_token(),
            "COLUMNS": "200",
        }
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["whoami"], env=environment)

    assert shown.stdout.splitlines() == [
        "oidc:ann-1",
        "  operator of * (by group:sre)",
        "  client of mail.*",
        f"  groups without a role: {', '.join(f'team-{number:02}' for number in range(20))} and 5 more",
    ]


async def test_a_server_that_asks_nobody_says_so(run_duly):
    assert "auth.mode = none" in (await run_duly("whoami")).stdout


async def test_a_role_is_given_listed_and_taken_away(run):
    added = await run("grant", "add", "shop", "client", "mail.*", "report.make")
    again = await run("grant", "add", "shop", "client", "mail.*")
    listed = await run("grant", "list", "--principal", "shop", "--json")
    removed = await run("grant", "remove", "shop", "client", "mail.*")
    absent = await run("grant", "remove", "shop", "client", "mail.*")

    assert added.stdout.splitlines() == ["shop is client of mail.*", "shop is client of report.make"]
    assert "nothing is new" in again.stderr
    assert [each["pattern"] for each in objects(listed)] == ["mail.*", "report.make"]
    assert removed.stdout == "1 of 1 removed\n"
    assert absent.exit_code == 1


async def test_an_invalid_grant_is_refused_in_a_line(run):
    for arguments, reason in [
        (("shop", "boss", "*"), "not a role"),
        (("shop", "client", "Mail"), "no lambda's name"),
        (("", "client", "*"), "principal"),
    ]:
        done = await run("grant", "add", *arguments)

        assert done.exit_code != 0
        assert reason in done.stderr


FILE = """
[[grant]]
principal = "shop"
role = "client"
patterns = ["mail.*", "report.make"]

[[grant]]
principal = "host-1"
role = "host"
patterns = ["*"]
"""


async def test_a_file_is_shown_line_by_line_and_then_applied(run, tmp_path):
    file = tmp_path / "grants.toml"
    file.write_text(FILE)
    await run("grant", "add", "old", "auditor", "*")

    dry = await run("grant", "apply", str(file), "--dry-run")
    before = objects(await run("grant", "list", "--json"))
    done = await run("grant", "apply", str(file))
    again = await run("grant", "apply", str(file))

    assert dry.stdout.splitlines() == [
        "+ host-1 is host of *",
        "+ shop is client of mail.*",
        "+ shop is client of report.make",
        "3 would be added, 0 would be removed; 2 not in the file stay (--prune takes them away)",
    ]
    assert {each["principal"] for each in before} == {"ann", "old"}
    assert done.stdout.splitlines()[:3] == dry.stdout.splitlines()[:3]
    assert again.stdout.startswith("0 added, 0 removed")


async def test_prune_takes_away_what_the_file_does_not_have(run, tmp_path):
    file = tmp_path / "grants.toml"
    file.write_text(FILE + '[[grant]]\nprincipal = "ann"\nrole = "operator"\npatterns = ["*"]\n')
    await run("grant", "add", "old", "auditor", "*")

    done = await run("grant", "apply", str(file), "--prune", "--json")

    assert {"change": "-", "principal": "old", "role": "auditor", "pattern": "*"} in objects(done)
    assert {each["principal"] for each in objects(await run("grant", "list", "--json"))} == {
        "ann",
        "shop",
        "host-1",
    }


async def test_prune_never_takes_away_the_callers_own_role_of_operator(run, tmp_path):
    file = tmp_path / "grants.toml"
    file.write_text(FILE)

    done = await run("grant", "apply", str(file), "--prune")

    assert done.exit_code == 2
    assert "you are operator of *" in done.stderr.replace("\n", " ")
    assert [each["principal"] for each in objects(await run("grant", "list", "--json"))] == ["ann"]


async def test_nothing_of_a_file_is_written_if_a_part_is_invalid(run, tmp_path):
    for wrong in [
        "[[grant]",
        "[grant]\n",
        "[[grants]]\n",
        '[[grant]]\nprincipal = "x"\nrole = "boss"\npatterns = ["*"]\n',
        '[[grant]]\nprincipal = "x"\nrole = "client"\npatterns = ["A b"]\n',
        '[[grant]]\nprincipal = "x"\nrole = "client"\npatterns = []\n',
        '[[grant]]\nprincipal = "x"\nrole = "client"\npattern = "*"\n',
        '[[grant]]\nprincipal = ""\nrole = "client"\npatterns = ["*"]\n',
    ]:
        file = tmp_path / "grants.toml"
        file.write_text(FILE + wrong)

        done = await run("grant", "apply", str(file))

        assert done.exit_code == 2
        assert [each["principal"] for each in objects(await run("grant", "list", "--json"))] == ["ann"]


async def test_a_token_is_on_stdout_alone_and_works(run, served):
    await run("grant", "add", "shop", "client", "*")

    made = await run("tokens", "create", "shop", "--lifetime", "1h", "--note", "the shop")
    token = made.stdout.strip()
    shown = await run("whoami", token=token)
    (listed,) = [
        each for each in objects(await run("tokens", "list", "--json")) if each["principal"] == "shop"
    ]

    assert made.stdout.count("\n") == 1
    assert token not in made.stderr
    assert shown.stdout.startswith("shop\n")
    assert (listed["note"], listed["created_by"], listed["state"]) == ("the shop", "ann", "valid")
    assert token.split("_")[2] not in json.dumps(listed)


async def test_a_revoked_token_is_refused(run):
    made = objects(await run("tokens", "create", "shop", "--json"))[0]

    revoked = await run("tokens", "revoke", made["token_id"])
    again = await run("tokens", "revoke", made["token_id"])
    shown = await run("whoami", token=made["token"])
    listed = objects(await run("tokens", "list", "--all", "--json"))

    assert revoked.stdout == f"{made['token_id']}: revoked\n"
    assert again.exit_code == shown.exit_code == 1
    assert "unknown, revoked or expired" in shown.stderr
    assert {each["token_id"]: each["state"] for each in listed}[made["token_id"]] == "revoked"


async def test_a_token_is_written_into_a_file_of_its_owner(run, tmp_path):
    file = tmp_path / "shop.token"

    done = await run("tokens", "create", "shop", "--to-file", str(file))

    token = file.read_text().strip()
    assert (file.stat().st_mode & 0o777, token in done.output) == (0o600, False)
    assert (await run("whoami", token=token)).stdout.startswith("shop\n")
    assert [each.name for each in tmp_path.iterdir()] == ["shop.token"]


async def test_no_token_is_made_for_a_file_that_cannot_be_written(run, tmp_path):
    done = await run("tokens", "create", "shop", "--to-file", str(tmp_path / "nowhere" / "shop.token"))

    assert done.exit_code == 2
    assert len(objects(await run("tokens", "list", "--json"))) == 1


async def test_the_audit_log_is_shown_newest_last_and_filtered(run):
    await run("grant", "add", "shop", "client", "*")
    await run("grant", "remove", "shop", "client", "*")
    await run("list", token="duly_x_y")

    everything = objects(await run("audit", "--json"))
    newest = objects(await run("audit", "--limit", "1", "--method", "RemoveGrants", "--json"))
    refused = objects(await run("audit", "--refused", "--since", "1h", "--json"))
    table = await run("audit")

    methods = [each["method"].partition("/")[2] for each in everything]
    assert methods.index("AddGrants") < methods.index("RemoveGrants")
    assert newest[0]["request"]["grants"][0]["principal"] == "shop"
    assert {each["outcome"] for each in refused} == {"UNAUTHENTICATED"}
    assert table.stdout.splitlines()[0].split() == [
        "AT",
        "WHO",
        "CALL",
        "OUTCOME",
        "FROM",
        "WHAT",
        "IT",
        "NAMED",
    ]


async def test_the_asyncio_client_yields_events_over_pages(served):
    async with duly.AsyncClient(served.address, token=OPERATOR) as client:
        for name in ("a", "b", "c"):
            await client.add_grants([duly.Grant(name, duly.Role.AUDITOR, "*")])
        events = [
            event
            async for event in client.audit_events(page_size=2, since=datetime.now(UTC) - timedelta(hours=1))
        ]

        assert [event.request["grants"][0]["principal"] for event in events] == ["c", "b", "a"]
        assert all(event.answer["added"] == 1 for event in events)


async def test_thousands_of_grants_are_given_in_several_calls(served):
    async with duly.AsyncClient(served.address, token=OPERATOR) as client:
        many = [duly.Grant(f"p{number}", duly.Role.CLIENT, "mail.*") for number in range(2_001)]

        assert await client.add_grants(many) == 2_001
        assert await client.remove_grants(many) == 2_001


async def test_what_is_no_list_of_grants_is_refused(served):
    for wrong in [duly.Grant("a", duly.Role.CLIENT), ["shop"], [duly.Grant("a", 9)]]:
        async with duly.AsyncClient(served.address, token=OPERATOR) as client:
            with pytest.raises(duly.InvalidTaskError):
                await client.add_grants(wrong)


async def test_errors_have_types(served, store):
    await give_token(store, "duly_bob_secret", "bob")

    async with duly.AsyncClient(served.address, token="duly_bob_secret") as bob:
        with pytest.raises(duly.PermissionDeniedError):
            await bob.tokens()
    async with duly.AsyncClient(served.address) as nobody:
        with pytest.raises(duly.UnauthenticatedError):
            await nobody.access()
    with pytest.raises(duly.CredentialsError):
        duly.AsyncClient(served.address, token="a b")


async def test_the_first_operator_is_made_in_the_store(run, dsn):
    def make(*more):
        return CliRunner().invoke(app, ["db", "operator", "eve", "--dsn", dsn, *more])

    made = await asyncio.to_thread(make)
    second = await asyncio.to_thread(make, "--json")

    shown = await run("whoami", token=made.stdout.strip())
    assert shown.stdout.splitlines() == ["eve", "  operator of *"]
    assert json.loads(second.stdout)["token"] != made.stdout.strip()
    (event, *_) = objects(await run("audit", "--method", "duly db operator", "--json"))
    assert event["request"] == {"principal": "eve"}


def test_an_operator_needs_a_schema_and_a_store():
    refused = CliRunner().invoke(
        app, ["db", "operator", "eve", "--dsn", "host=127.0.0.1 port=1 dbname=nowhere"]
    )

    assert refused.exit_code == 69
    assert refused.stderr.startswith("duly db operator: the store at ")


def test_a_database_without_duly_is_told(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create schema empty")

    refused = CliRunner().invoke(
        app, ["db", "operator", "eve", "--dsn", f"{dsn} options='-c search_path=empty'"]
    )

    assert (refused.exit_code, "duly migrate" in refused.stderr) == (78, True)


@pytest.mark.parametrize("command", [["grant", "list"], ["tokens", "list"], ["audit"], ["whoami"]])
async def test_lines_fit_80_columns_of_a_terminal(run, command, monkeypatch):
    monkeypatch.setattr("duly_cli.output.table.terminal_width", lambda: 80)
    await run("grant", "add", "shop.service.example.org", "client", "mail.*")
    await run("tokens", "create", "shop.service.example.org", "--note", "for " * 30)

    shown = await run(*command, columns="80")

    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_frontend_that_does_not_answer_is_not_taken_for_a_file_that_cannot_be_written(tmp_path):
    command = ["tokens", "create", "shop", "--to-file", str(tmp_path / "token"), "--address", "127.0.0.1:1"]

    done = CliRunner().invoke(app, command)

    assert (done.exit_code, [*tmp_path.iterdir()]) == (69, [])
    assert "no Duly Frontend answers at 127.0.0.1:1" in done.stderr


async def test_no_token_is_made_for_a_folder(run, tmp_path):
    done = await run("tokens", "create", "shop", "--to-file", str(tmp_path))

    assert (done.exit_code, len(objects(await run("tokens", "list", "--json")))) == (2, 1)
