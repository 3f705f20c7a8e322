"""Settings, read from the environment. `docs/configuration.md` has the table of what can be set.

A home made by `make up` leaves `run.env` behind, so that `manage.py` beside a running home finds its
database, broker and secret without any variable being set.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.module_loading import import_string

from openrelay.core.database.bounded import Connection

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

OPENRELAY_HOME = Path(env.str("OPENRELAY_HOME", default=str(BASE_DIR / "var"))).expanduser().resolve()
if "DATABASE_URL" not in env.ENVIRON and (OPENRELAY_HOME / "run.env").is_file():
    environ.Env.read_env(OPENRELAY_HOME / "run.env")

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set it to 50 or more random characters that stay the same across "
            "restarts (python -c 'import secrets; print(secrets.token_urlsafe(50))'), or run `make up`, "
            "whose home makes its own."
        )
    SECRET_KEY = "debug-only-secret-never-used-without-DEBUG"  # noqa: S105
PORT = env.int("PORT", default=8000)
BASE_URL = env.str("BASE_URL", default=f"http://127.0.0.1:{PORT}").rstrip("/")
_public = urlsplit(BASE_URL)
ALLOWED_HOSTS = env.list(
    "ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]", *filter(None, [_public.hostname])]
)
if not DEBUG and "*" in ALLOWED_HOSTS:
    raise ImproperlyConfigured(
        "ALLOWED_HOSTS is a wildcard. Name the hosts that OpenRelay is reached by, such as "
        "ALLOWED_HOSTS=gpu.example.com, or set DEBUG=true on a development machine."
    )
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[f"{_public.scheme}://{_public.netloc}"])

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "openrelay.identity",
    "openrelay.audit",
    "openrelay.api",
    "openrelay.console",
    "nodes",
    "compute",
    "reservations",
]

MIDDLEWARE = [
    "openrelay.api.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "openrelay.api.middleware.ConsoleOnly",
]
# What only the console needs; the API has neither cookies nor forms, and does not pay for them.
CONSOLE_MIDDLEWARE = [
    "openrelay.console.middleware.ContentPolicy",
    "openrelay.console.middleware.WithoutNul",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "openrelay.console.middleware.OperatorsAddress",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

# The admin looks for them in MIDDLEWARE; openrelay.api.middleware.ConsoleOnly runs them where the console is.
SILENCED_SYSTEM_CHECKS = ["admin.E408", "admin.E409", "admin.E410"]

ROOT_URLCONF = "openrelay.urls"
WSGI_APPLICATION = "openrelay.wsgi.application"
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        **env.db_url("DATABASE_URL", default="postgres://postgres@127.0.0.1:5432/openrelay"),
        "ENGINE": "openrelay.core.database",
        "ATOMIC_REQUESTS": False,
        # Server-side cursors outlive a statement, which a transaction-mode pooler cannot give.
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}
# How many seconds a process of this kind waits for one lock and for one statement, keeps a transaction open
# with nothing to do, and waits for a connection. 0 sets no limit. A web server gives up before its client and
# its supervisor do; a command may have a whole database to read.
OPENRELAY_PROCESS = env.str("OPENRELAY_PROCESS", default="command")
_lock, _statement, _idle, _connect = {
    "web": (5, 15, 15, 5),
    "worker": (5, 120, 60, 5),
    "command": (30, 3600, 600, 10),
}[OPENRELAY_PROCESS]
DATABASE_LOCK_TIMEOUT = env.float("DATABASE_LOCK_TIMEOUT", default=_lock)
DATABASE_STATEMENT_TIMEOUT = env.float("DATABASE_STATEMENT_TIMEOUT", default=_statement)
DATABASE_IDLE_IN_TRANSACTION_TIMEOUT = env.float("DATABASE_IDLE_IN_TRANSACTION_TIMEOUT", default=_idle)
DATABASE_CONNECT_TIMEOUT = env.int("DATABASE_CONNECT_TIMEOUT", default=_connect)
# How many threads of this process take work; 0 where there is nobody else to wait for.
PROCESS_THREADS = {
    "web": env.int("WEB_THREADS", default=8),
    "worker": env.int("WORKER_THREADS", default=4),
    "command": 0,
}[OPENRELAY_PROCESS]
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": DATABASE_CONNECT_TIMEOUT,
    # A connection whose other end vanished without a word is given up by the kernel.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    **DATABASES["default"].get("OPTIONS", {}),
}
# Whether the statements that everybody waits for are prepared. Behind a transaction-mode pooler only when it
# keeps track of them, as PgBouncer does from 1.22 on.
DATABASE_PREPARES = env.bool("DATABASE_PREPARES", default=False)
if DATABASE_PREPARES:
    DATABASES["default"]["OPTIONS"]["prepare_threshold"] = 0
DATABASE_POOL_SIZE = env.int("DATABASE_POOL_SIZE", default=0)
if DATABASE_POOL_SIZE:
    DATABASES["default"]["OPTIONS"]["pool"] = {
        "connection_class": Connection,
        "min_size": 1,
        "max_size": DATABASE_POOL_SIZE,
        "timeout": DATABASE_CONNECT_TIMEOUT,
        "max_idle": 300,
    }
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 60
    # A connection that died with a restarted database is noticed before a task gets it. The pool's are looked
    # at by our own backend, at less cost.
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The SQL that reads the clock. Only test settings put another one here.
CLOCK_SQL = "statement_timestamp()"

REDIS_URL = env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")
REDIS_PREFIX = env.str("REDIS_PREFIX", default="openrelay:")
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 3600,
    "socket_connect_timeout": 1,
    "socket_timeout": 5,
    "global_keyprefix": REDIS_PREFIX,
}

AUTH_USER_MODEL = "identity.User"
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator",
        "OPTIONS": {"user_attributes": ("email", "full_name")},
    },
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
    {"NAME": "openrelay.identity.passwords.DifferentCharactersValidator"},
]
SESSION_COOKIE_NAME = "openrelay_console"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "openrelay_csrf"
# How many attempts to sign in to the console may fail in a quarter of an hour; 0 counts nothing.
SIGN_IN_FAILURES_PER_ACCOUNT = env.int("SIGN_IN_FAILURES_PER_ACCOUNT", default=10)
SIGN_IN_FAILURES_PER_ADDRESS = env.int("SIGN_IN_FAILURES_PER_ADDRESS", default=50)
# A console reached by https keeps its cookies to https.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env.bool("TRUST_FORWARDED_PROTO", default=False) else None
)
# How many proxies of our own stand in front: that many entries of X-Forwarded-For are believed.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=0)
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True

# Requests a minute of one key or person, and of one address without a valid credential; 0 counts nothing.
RATE_LIMIT_PER_MINUTE = env.int("RATE_LIMIT_PER_MINUTE", default=6000)
RATE_LIMIT_PER_ADDRESS_PER_MINUTE = env.int("RATE_LIMIT_PER_ADDRESS_PER_MINUTE", default=600)
REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["openrelay.api.parser.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["openrelay.api.auth.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_THROTTLE_CLASSES": ["openrelay.api.throttle.CallerThrottle"],
    "DEFAULT_SCHEMA_CLASS": "openrelay.api.schema.auto.OperationSchema",
    "EXCEPTION_HANDLER": "openrelay.api.handler.handle",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
    "COMPACT_JSON": True,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

# Where each app says in words what its operations take and answer.
API_DESCRIPTIONS = [
    "openrelay.api.schema.common",
    "openrelay.identity.api.schema",
    "openrelay.audit.api.schema",
    "nodes.api.schema",
    "compute.api.schema",
    "compute.api.schema_notices",
    "reservations.api.schema",
    "reservations.api.schema_provider",
]
SPECTACULAR_SETTINGS = {
    "TITLE": "OpenRelay",
    "VERSION": "v1",
    "DESCRIPTION": (
        "The control plane of a GPU cloud: nodes with GPUs, VMs on them, and reservations whose idle units "
        "may be sold a second time on a spot market that gives way.\n\nBodies are JSON with names in "
        "camelCase; a field that has nothing to say is absent; a field that is not known is refused. Times "
        "are RFC 3339 and carry an offset; answers are in UTC. Ids are opaque, except a GPU unit's, which "
        "is its PCI address. Every refusal is an `Error`: programs go by its `code`. Each answer carries "
        "`X-Request-Id`, which the audit log keeps too."
    ),
    # The served schema names BASE_URL; the one in docs/ is the same for every installation.
    "SERVERS": [{"url": "/", "description": "The server that this schema was read from."}],
    "LICENSE": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "OAS_VERSION": "3.1.0",
    "POSTPROCESSING_HOOKS": ["openrelay.api.schema.hooks.complete"],
    "COMPONENT_SPLIT_PATCH": False,
    "SORT_OPERATIONS": False,
    "ENFORCE_NON_BLANK_FIELDS": True,
    "SERVE_INCLUDE_SCHEMA": False,
}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
FORMAT_MODULE_PATH = ["openrelay.console.formats"]

STATIC_URL = "/static/"
# Finders serve the assets straight from the packages: no collectstatic step to forget.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False


def _listed(title: str, icon: str, model: str) -> dict[str, Any]:
    """A list in the console's navigation; `model` is "app_model"."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{model}_changelist"),
        # Imported when a page is drawn: no app is loaded yet.
        "permission": lambda request: import_string("openrelay.console.access.can_view_named")(
            request, model
        ),
    }


UNFOLD = {
    "SITE_TITLE": "OpenRelay",
    "SITE_HEADER": "OpenRelay",
    "SITE_SUBHEADER": "Operator console",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("console/favicon.svg")}
    ],
    "BORDER_RADIUS": "6px",
    "STYLES": [lambda _request: static("console/console.css")],
    "DASHBOARD_CALLBACK": "reservations.admin.overview",
    "COLORS": {
        "primary": {
            "50": "oklch(97.1% .013 245)",
            "100": "oklch(93.6% .032 245)",
            "200": "oklch(88.5% .062 246)",
            "300": "oklch(80.8% .105 247)",
            "400": "oklch(71% .155 250)",
            "500": "oklch(62% .19 255)",
            "600": "oklch(54.5% .2 258)",
            "700": "oklch(48.8% .19 260)",
            "800": "oklch(42.4% .16 261)",
            "900": "oklch(37.9% .13 262)",
            "950": "oklch(28.2% .09 264)",
        },
    },
    "SIDEBAR": {
        "show_search": True,
        "navigation": [
            {
                "title": "",
                "items": [
                    {"title": "Overview", "icon": "dashboard", "link": reverse_lazy("admin:index")},
                    {
                        **_listed("Needs review", "rule", "reservations_reservation"),
                        "link": reverse_lazy("admin:reservations_reservation_queue"),
                        "active": lambda request: "/review/" in request.path,
                        "badge": "reservations.admin.needs_review_badge",
                        "badge_variant": "warning",
                        "badge_style": "solid",
                    },
                ],
            },
            {
                "title": "Reservations",
                "collapsible": True,
                "items": [
                    {
                        **_listed("Reservations", "event_available", "reservations_reservation"),
                        # The queue and its pages lie below this list, and have an item of their own.
                        "active": lambda request: (
                            "/reservation/" in request.path and "review" not in request.path
                        ),
                    },
                    _listed("Announcements", "campaign", "reservations_announcement"),
                    _listed("Managing organizations", "handshake", "reservations_reservationmanager"),
                ],
            },
            {
                "title": "Nodes",
                "collapsible": True,
                "items": [
                    _listed("Nodes", "dns", "nodes_node"),
                    _listed("GPU units", "memory", "nodes_gpuunit"),
                    _listed("GPUs", "developer_board", "nodes_gpu"),
                    _listed("Topology generations", "history", "nodes_topologygeneration"),
                    _listed("Inventory reports", "description", "nodes_inventoryreport"),
                    _listed("Holds", "lock", "nodes_hold"),
                    _listed("Units in holds", "lock_open", "nodes_holdunit"),
                    _listed("Audiences of holds", "groups", "nodes_holdaudience"),
                    _listed("Heartbeats", "monitor_heart", "nodes_nodeheartbeat"),
                    _listed("Node credentials", "badge", "nodes_nodecredential"),
                    _listed("Incidents of agents", "emergency", "nodes_nodeincident"),
                    _listed("Provider applications", "how_to_reg", "nodes_providerapplication"),
                    _listed("Fabrics", "hub", "nodes_fabric"),
                    _listed("Fabric addresses", "lan", "nodes_fabricaddress"),
                    _listed("GPU models", "category", "nodes_gpumodel"),
                    _listed("Locations", "location_on", "nodes_location"),
                ],
            },
            {
                "title": "Compute",
                "collapsible": True,
                "items": [
                    _listed("Workloads", "deployed_code", "compute_workload"),
                    _listed("Runs", "play_circle", "compute_run"),
                    _listed("Claims", "front_hand", "compute_claim"),
                    _listed("Occupancies", "meeting_room", "compute_occupancy"),
                    _listed("Agents", "smart_toy", "compute_agentstate"),
                    _listed("Flagged reports", "flag", "compute_flaggedreport"),
                    _listed("Usage sessions", "timer", "compute_usagesession"),
                    _listed("Units of sessions", "grid_on", "compute_usageunit"),
                    _listed("Prices", "sell", "compute_gpuprice"),
                    _listed("Prices of organizations", "loyalty", "compute_orggpuprice"),
                    _listed("Sizes without GPUs", "straighten", "compute_resourcesize"),
                    _listed("VM templates", "album", "compute_vmtemplate"),
                    _listed("SSH keys", "key", "compute_sshkey"),
                    _listed("Keys of workloads", "link", "compute_workloadsshkey"),
                    _listed("Surveys of offers", "travel_explore", "compute_availabilitystate"),
                    _listed("Offers of nodes", "storefront", "compute_nodeoffer"),
                    _listed("Changes of nodes", "change_circle", "compute_nodechange"),
                ],
            },
            {
                "title": "Identity",
                "collapsible": True,
                "items": [
                    _listed("Organizations", "corporate_fare", "identity_organization"),
                    _listed("People", "person", "identity_user"),
                    _listed("Memberships", "group", "identity_membership"),
                    _listed("Roles", "assignment_ind", "identity_role"),
                    _listed("API keys", "vpn_key", "identity_apikey"),
                    _listed("Sessions", "login", "identity_sessiontoken"),
                ],
            },
            {
                "title": "Platform",
                "collapsible": True,
                "items": [
                    _listed("Audit log", "receipt_long", "audit_auditevent"),
                    _listed("Background work", "schedule", "api_beat"),
                    _listed("Idempotency keys", "repeat_one", "api_idempotencykey"),
                ],
            },
        ],
    },
}

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO").upper()
if LOG_LEVEL not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
    raise ImproperlyConfigured(
        f"LOG_LEVEL is `{LOG_LEVEL}`. Set it to DEBUG, INFO, WARNING, ERROR or CRITICAL."
    )
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "filters": {
        # "No room now" is an answer like others, not a fault of the server.
        "not_busy": {
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: getattr(record, "status_code", 0) != 503,
        }
    },
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {"django.request": {"level": "ERROR", "filters": ["not_busy"]}, "httpx": {"level": "WARNING"}},
}

# Audit events older than so many days are deleted; 0 keeps them for ever.
AUDIT_RETENTION_DAYS = env.int("AUDIT_RETENTION_DAYS", default=365)
if AUDIT_RETENTION_DAYS < 0:
    raise ImproperlyConfigured(
        f"AUDIT_RETENTION_DAYS is {AUDIT_RETENTION_DAYS}. Set a number of days, or 0 to keep events for ever."
    )
# A node that was not heard from for so many seconds is offline.
NODE_OFFLINE_GRACE_SECONDS = env.int("NODE_OFFLINE_GRACE_SECONDS", default=90)
# A guest whose end the node did not confirm within so many seconds is reported as overdue.
TEARDOWN_OVERDUE_SECONDS = env.int("TEARDOWN_OVERDUE_SECONDS", default=120)
# A workload that deploys for longer than so many seconds is reported as stuck.
DEPLOY_OVERDUE_SECONDS = env.int("DEPLOY_OVERDUE_SECONDS", default=900)
# A balance that lasts for less than so many hours at the present rate is low.
BALANCE_LOW_HOURS = env.int("BALANCE_LOW_HOURS", default=24)
# Billed workloads are stopped so many minutes after their organization was told that its balance is used up.
BALANCE_GRACE_MINUTES = env.int("BALANCE_GRACE_MINUTES", default=60)
# An organization's workloads are stopped so many minutes after its account was suspended.
SUSPENSION_GRACE_MINUTES = env.int("SUSPENSION_GRACE_MINUTES", default=60)
CPU_VMS_BESIDE_FREE_GPUS = env.bool("CPU_VMS_BESIDE_FREE_GPUS", default=True)
# Where guests are reached by SSH, each by its handle as the user name.
SSH_GATEWAY_HOST = env.str("SSH_GATEWAY_HOST", default=_public.hostname or "127.0.0.1")
SSH_GATEWAY_PORT = env.int("SSH_GATEWAY_PORT", default=22)
# The domain below which every workload with an HTTP port has a name of its own; without one none has.
ENDPOINT_DOMAIN = env.str("ENDPOINT_DOMAIN", default="")
