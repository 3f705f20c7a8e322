from django.apps import AppConfig


class IdentityConfig(AppConfig):
    name = "openrelay.identity"
    verbose_name = "Identity"
