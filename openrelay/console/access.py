"""What a signed-in operator may see and do in the console, by the role that they hold at the platform."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest

from openrelay.console.caller import decider
from openrelay.core.errors import ApiError
from openrelay.identity.models import User

_READING = frozenset({"GET", "HEAD", "OPTIONS"})


def has_action(request: HttpRequest, action: str) -> bool:
    """Whether the request's operator holds `action` at the platform. Nobody holds the empty action."""
    user = request.user
    return isinstance(user, User) and action in user.console_actions


def require_action(request: HttpRequest, action: str, *, target_type: str, target_id: object) -> None:
    """Refuse an operator without `action`. A refused change is noted in the audit log on the target.

    Raises PermissionDenied with a sentence that names the action.
    """
    if has_action(request, action):
        return
    if request.method not in _READING:
        try:
            with decider(request, action, target_type=target_type, target_id=target_id):
                pass
        except ApiError as refusal:
            raise PermissionDenied(refusal.message) from refusal
    raise PermissionDenied(
        f"This page needs {action or 'a permission that nobody holds'}, and your role at the platform does "
        "not include it. Ask an owner or admin of the platform."
    )


def can_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the request's operator may open the list and the pages of a model."""
    if not admin.site.is_registered(model):
        return False
    return bool(admin.site.get_model_admin(model).has_view_permission(request))


def can_view_named(request: HttpRequest, name: str) -> bool:
    """Whether the request's operator may open the list of a model, named "app_model" in lower case."""
    return any(
        f"{model._meta.app_label}_{model._meta.model_name}" == name and can_view(request, model)
        for model in admin.site._registry
    )
