"""The statements of pools."""

from duly_core.postgres.statements import load

POOLS = load("pools/pools.sql")
