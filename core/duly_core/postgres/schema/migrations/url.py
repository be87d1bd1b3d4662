"""The store's address as SQLAlchemy has it: for migrations, which alone connect through it."""

import sqlalchemy as sa

from duly_core.postgres.dsn import parse


def sqlalchemy_url(dsn: str) -> sa.URL:
    """The same address for SQLAlchemy, with psycopg as its driver."""
    parts = parse(dsn)
    known = {name: parts.pop(name, None) for name in ("user", "password", "host", "port", "dbname")}
    parts.pop("connect_timeout", None)
    query: dict[str, str | tuple[str, ...]] = {name: str(value) for name, value in parts.items()}
    hosts = str(known["host"] or "").split(",")
    if len(hosts) > 1:  # a primary and its standbys: libpq tries them in turn
        ports = str(known["port"] or 5432).split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        query["host"] = tuple(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
        known["host"] = known["port"] = None
    return sa.URL.create(
        "postgresql+psycopg",
        username=known["user"],
        password=known["password"],
        host=known["host"],
        port=int(known["port"]) if known["port"] else None,
        database=known["dbname"],
        query=query,
    )
