"""Make people."""

import uuid

from django.db import IntegrityError, transaction

from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Conflict, NotFound
from openrelay.core.text import require_length, require_name
from openrelay.identity.models import SessionToken, User
from openrelay.identity.services.sessions_end import end_sessions


def create_user(*, actor: Actor, email: str, password: str | None = None, full_name: str = "") -> User:
    """Make a person, who signs in to the console with `password` if there is one.

    Raises Conflict (INVALID_STATE) when the address is taken, Invalid (VALIDATION_ERROR) for an address or a
    name that is too long, and for a name with characters that cannot be seen.
    """
    require_length("email", email, at_most=254)
    require_name("full_name", full_name, at_most=200)
    try:
        with transaction.atomic():
            at = clock.read()
            user = User.objects.create_user(email, password, created_at=at, full_name=full_name)
            record(
                actor,
                "user.created",
                target_type="user",
                target_id=user.id,
                after={"email": user.email, "fullName": full_name},
                at=at,
            )
    except IntegrityError as error:
        raise Conflict(f"There is a person with the address {email} already.") from error
    return user


def set_password(*, actor: Actor, user_id: uuid.UUID, password: str) -> None:
    """Give a person another password for the console, and end all their API sessions.

    Browser sessions end by themselves: they are signed with the password. Raises NotFound for somebody who is
    not there.
    """
    with transaction.atomic():
        user: User | None = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound()
        user.set_password(password)
        user.save(update_fields=["password"])
        at = clock.read()
        record(actor, "user.password_set", target_type="user", target_id=user.id, at=at)
        end_sessions(actor, SessionToken.objects.filter(user=user), reason="the password was changed", at=at)
