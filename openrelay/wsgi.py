"""The WSGI application that the web server runs."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openrelay.settings")
os.environ["OPENRELAY_PROCESS"] = "web"
# A web process answers many requests at once from threads, which share a pool of connections.
os.environ.setdefault("DATABASE_POOL_SIZE", "8")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
