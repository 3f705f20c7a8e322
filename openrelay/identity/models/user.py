"""A person, who signs in with an email address."""

import datetime as dt
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models.functions import Lower
from django.utils.functional import cached_property

from openrelay.core.ids import new_id
from openrelay.identity.roles import builtin


class UserManager(BaseUserManager["User"]):
    """Finds people by address, whatever its case."""

    def create_user(
        self, email: str, password: str | None, *, created_at: dt.datetime, full_name: str = ""
    ) -> "User":
        """Store a new person. Without a password they cannot sign in to the console."""
        user = self.model(email=email.strip().lower(), full_name=full_name, created_at=created_at)
        user.set_password(password)
        user.save(using=self._db, force_insert=True)
        return user

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser):
    """A person. What they may do comes from their memberships alone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(unique=True)
    full_name = models.CharField(max_length=200, blank=True)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    objects = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="user_email_is_lower_case"),
        ]

    def __str__(self) -> str:
        return self.email

    def get_full_name(self) -> str:
        return self.full_name or self.email

    def get_short_name(self) -> str:
        return self.full_name or self.email

    @cached_property
    def is_staff(self) -> bool:
        """Whether the console opens: for members of the platform ops organization."""
        return self._operators_place is not None

    def console_opens_from(self, address: str) -> bool:
        """Whether it opens from an address: their role there may narrow from where it is used."""
        place = self._operators_place
        return place is not None and (
            place.custom_role is None or place.custom_role.held().serves_from(address)
        )

    @cached_property
    def _operators_place(self) -> Any:
        places = self.memberships.filter(organization__is_platform_ops=True, joined_at__isnull=False)
        return places.select_related("custom_role").first()

    @cached_property
    def console_actions(self) -> frozenset[str]:
        """The actions that this person's role in the platform ops organization gives; none without one."""
        place = self._operators_place
        if place is None or not self.is_active:
            return frozenset()
        held = place.custom_role.held() if place.custom_role else builtin(place.role)
        actions: frozenset[str] = held.actions(platform_ops=True)
        return actions

    # Django's per-model permissions grant nothing. Each page of the console names the action that it needs
    # (openrelay.console.base), so a page that names none is closed.
    def has_perm(self, perm: str, obj: Any = None) -> bool:
        return False

    def has_perms(self, perm_list: list[str], obj: Any = None) -> bool:
        return False

    def has_module_perms(self, app_label: str) -> bool:
        return False
