"""Makes an operator without a server: whoever may write into the store may do everything anyway."""

from datetime import timedelta

import psycopg

from duly_core.access.principal import is_reserved
from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.postgres.admin_connection import admin_connection
from duly_core.postgres.dsn import describe

_METHOD = "duly db operator"


def make_operator(
    dsn: str, principal: str, *, lifetime: timedelta | None = None, note: str = ""
) -> tuple[str, str]:
    """Write a token and the role of operator for everything; return the token and its id.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or somebody holds its tables for long; nothing was changed.
        SettingsError: the name is reserved, the user may not write there, or there is no schema of Duly.
    """
    if is_reserved(principal):
        raise SettingsError(
            f"{principal!r} is reserved for Duly itself, people or groups: choose another name"
        )
    token_id, token, digest = new_token()
    try:
        with admin_connection(dsn) as connection:
            connection.execute("update access_version set version = version + 1")
            connection.execute(
                """
                insert into access_token (digest, token_id, principal, note, created_at, created_by, expires_at)
                values (%s, %s, %s, %s, duly_now(), session_user, duly_now() + %s::interval)
                """,
                (digest, token_id, principal, note, lifetime),
            )
            connection.execute(
                """
                insert into role_grant (principal, role, pattern, granted_at, granted_by)
                values (%s, %s, %s, duly_now(), session_user) on conflict do nothing
                """,
                (principal, str(Role.OPERATOR), EVERYTHING),
            )
            connection.execute(
                """
                insert into audit_event (at, actor, peer, method, outcome, request, answer)
                values (
                    duly_now(), session_user, coalesce(inet_client_addr()::text, 'local'), %s, 'OK',
                    json_build_object('principal', %s::text)::text, json_build_object('token_id', %s::text)::text
                )
                """,
                (_METHOD, principal, token_id),
            )
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {describe(dsn)} cannot be changed now: {error}") from error
    except psycopg.errors.UndefinedTable as error:
        raise SettingsError(
            f"there is no schema of Duly at {describe(dsn)}: run `duly migrate` first"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"this user may not write tokens at {describe(dsn)}: connect as the user of the Frontend, or as the one who migrates"
        ) from error
    except psycopg.Error as error:
        raise SettingsError(
            f"no operator was made at {describe(dsn)}: {str(error).strip().partition(chr(10))[0]}"
        ) from error
    return token, token_id
