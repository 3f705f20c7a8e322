from openrelay.audit.models.audit_event import AuditEvent
from openrelay.audit.models.audit_repeat import AuditRepeat

__all__ = ["AuditEvent", "AuditRepeat"]
