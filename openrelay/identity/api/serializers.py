"""What identity's operations take."""

from openrelay.api.serializers import (
    FreeTextField,
    IdField,
    NameField,
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictListField,
    StrictSerializer,
)
from openrelay.identity.services.access import API_KEY, MEMBER
from openrelay.identity.services.keys import PERIODS

_TEN_YEARS = 10 * 366 * 24 * 3600


class KeyRestrictionsBody(StrictSerializer):
    """What narrows a key."""

    permissions = StrictListField(child=StrictCharField(max_length=64), required=False, max_length=200)
    ipRanges = StrictListField(
        child=StrictCharField(max_length=50), required=False, max_length=20, source="ip_ranges"
    )
    endpoints = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)
    models = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)


class KeyBudgetBody(StrictSerializer):
    """A key's first budget; amounts in nano-USD."""

    limitNanoUsd = StrictIntegerField(min_value=1, source="limit")
    period = StrictChoiceField(choices=PERIODS, required=False)


class KeyBudgetEditBody(StrictSerializer):
    """A change of a key's budget; 0 removes it."""

    limitNanoUsd = StrictIntegerField(min_value=0, required=False, source="limit")
    period = StrictChoiceField(choices=PERIODS, required=False)


class CreateApiKeyBody(StrictSerializer):
    """A new API key."""

    name = NameField(max_length=200)
    note = FreeTextField(max_length=2000, required=False, allow_blank=True)
    permissions = StrictListField(
        child=StrictCharField(max_length=64), required=False, max_length=200, allow_empty=False
    )
    template = StrictCharField(max_length=64, required=False)
    scopes = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=50)
    restrictions = KeyRestrictionsBody(required=False)
    budget = KeyBudgetBody(required=False)
    expiresInSeconds = StrictIntegerField(required=False, max_value=_TEN_YEARS, source="expires_in_seconds")
    kind = StrictChoiceField(choices=("org", "personal"), required=False)
    ephemeral = StrictBooleanField(required=False)
    serviceAccountId = StrictCharField(
        max_length=200, required=False, allow_blank=True, source="service_account_id"
    )


class UpdateApiKeyBody(StrictSerializer):
    """A change of an API key: its budget."""

    budget = KeyBudgetEditBody(required=False)
    name = NameField(max_length=200, required=False)
    note = FreeTextField(max_length=2000, required=False, allow_blank=True)
    restrictions = KeyRestrictionsBody(required=False)


class CreateRoleBody(StrictSerializer):
    """A new role."""

    name = NameField(max_length=100)
    permissions = StrictListField(child=StrictCharField(max_length=64), max_length=200, allow_empty=False)
    description = FreeTextField(max_length=2000, required=False, allow_blank=True)
    ipRanges = StrictListField(
        child=StrictCharField(max_length=50), required=False, max_length=20, source="ip_ranges"
    )
    endpoints = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)
    models = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)


class UpdateRoleBody(StrictSerializer):
    """A change of a role; what is absent stays, an empty list removes a condition."""

    name = NameField(max_length=100, required=False)
    permissions = StrictListField(
        child=StrictCharField(max_length=64), required=False, max_length=200, allow_empty=False
    )
    description = FreeTextField(max_length=2000, required=False, allow_blank=True)
    ipRanges = StrictListField(
        child=StrictCharField(max_length=50), required=False, max_length=20, source="ip_ranges"
    )
    endpoints = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)
    models = StrictListField(child=StrictCharField(max_length=200), required=False, max_length=100)


class EffectiveQuery(StrictSerializer):
    """Whose access to show; without both, the caller's own."""

    principalType = StrictChoiceField(choices=(API_KEY, MEMBER), required=False, source="principal_type")
    principalId = IdField(required=False, source="principal_id")


class AccessCheckBody(StrictSerializer):
    """Whose access to what to judge, and as from where."""

    action = StrictCharField(max_length=64)
    principalType = StrictChoiceField(choices=(API_KEY, MEMBER), source="principal_type")
    principalId = IdField(source="principal_id")
    sourceIp = StrictCharField(max_length=50, required=False, source="source_ip")
    endpointId = StrictCharField(max_length=200, required=False, source="endpoint_id")
    model = StrictCharField(max_length=200, required=False)
