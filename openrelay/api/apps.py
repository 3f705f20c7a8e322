from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "openrelay.api"
    verbose_name = "API"
