from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "openrelay.audit"
    verbose_name = "Audit"
