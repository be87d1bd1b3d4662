"""`duly config` shows every setting, and no password."""

import pytest

from duly_cli.config import shown


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@db:5432/duly",
        "postgresql://db/duly?user=ann&password=s3cret&sslmode=require",
        "host=db password=s3cret user=ann",
        "host=db password = 's3cret it\\'s s3cret' user=ann",
        "sslpassword=s3cret host=db",
    ],
)
def test_a_password_is_not_shown_and_the_rest_is(address: str) -> None:
    text = shown(address)

    assert "s3cret" not in text
    assert "***" in text
    assert "db" in text


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert shown("postgresql://duly@127.0.0.1:5432/duly") == "postgresql://duly@127.0.0.1:5432/duly"
    assert shown("host=db user=ann") == "host=db user=ann"
