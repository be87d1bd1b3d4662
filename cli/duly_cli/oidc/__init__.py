"""Sign-in of people by an identity provider (OpenID Connect), for commands."""
