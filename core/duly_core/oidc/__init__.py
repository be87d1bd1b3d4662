"""Sign-in of people by an identity provider (OpenID Connect): what the console and the command line share."""
