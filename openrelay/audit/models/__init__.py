from openrelay.audit.models.audit_event import AuditEvent

__all__ = ["AuditEvent"]
