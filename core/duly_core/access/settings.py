"""Settings of who is asked for a token or certificate, and which JWTs count."""

from typing import ClassVar, Literal

from duly_core.config.settings import Section


class AuthSettings(Section):
    """`[auth]`: who may call Frontend and HSC."""

    SECTION: ClassVar[str] = "auth"

    mode: Literal["none", "required"] = "none"
    """`none`: callers are not identified, and everybody may do everything. `required`: each call needs a token or a
    client certificate, and a grant."""
    jwks: str = ""
    """File or https URL of the JSON Web Key Set that signs callers' JWTs. Empty: JWTs are not accepted."""
    jwt_issuer: str = ""
    """The `iss` that a JWT must have."""
    jwt_audience: str = "duly"
    """The `aud` that a JWT must have."""
    jwt_principal_claim: str = "sub"
    """The claim of a JWT that is its principal's name."""
    oidc_issuer: str = ""
    """Issuer of people's ID tokens, an https URL: the identity provider that the console signs people in with. Empty: none."""
    oidc_audience: str = ""
    """The `aud` that an ID token must have: the client id of the console. Several stand with commas between them."""
    oidc_cli_client_id: str = ""
    """The client id of commands (`duly login`), a public client of the same issuer; its ID tokens count, too. Empty: commands have no
    sign-in."""
    oidc_cli_scopes: str = "openid profile email"
    """What `duly login` asks for. Some providers give a refresh token only with `offline_access`."""
    oidc_principal_claim: str = "sub"
    """The claim of an ID token that is the person's name, after `oidc:`. `email` counts only if the provider verified it."""
    oidc_groups_claim: str = "groups"
    """The claim of an ID token that has the person's groups. Empty: groups do not count."""
