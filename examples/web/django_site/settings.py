"""Settings of the site: its database has Duly's tables, too."""

import os

from psycopg.conninfo import conninfo_to_dict

_database = conninfo_to_dict(os.environ["ORDERS_DSN"])

SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-this-machine")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "examples.web.django_site.urls"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.get("dbname", ""),
        "USER": _database.get("user", ""),
        "PASSWORD": _database.get("password", ""),
        "HOST": _database.get("host", ""),
        "PORT": _database.get("port", ""),
        # each request is a transaction, so a view needs no `atomic`
        "ATOMIC_REQUESTS": True,
    }
}
