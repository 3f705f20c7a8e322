"""What an operator can fill in on the review screen."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Q

from openrelay.core.ids import parse_id
from openrelay.identity.models import Organization


class ShownForm(forms.Form):
    """What the page had before the operator's eyes, carried along until the decision."""

    generation = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    updated_at = forms.DateTimeField(widget=forms.HiddenInput)


class PlainForm(forms.Form):
    """For a choice that asks for nothing."""


class AudienceForm(forms.Form):
    """Which organizations to add to the audience and which to take from it."""

    add = forms.CharField(
        required=False,
        max_length=2000,
        label="Add organizations",
        help_text="Slugs or ids; several with commas between them.",
    )
    remove: Any = forms.ModelMultipleChoiceField(Organization.objects.none(), required=False, label="Remove")

    def __init__(self, *args: Any, audience: Sequence[Organization], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.audience = list(audience)
        # The platform's own organization is always in the audience.
        self.removable = [org for org in audience if not org.is_platform_ops]
        self.fields["remove"].queryset = Organization.objects.filter(  # type: ignore[attr-defined]
            pk__in=[org.pk for org in self.removable]
        ).order_by("name")

    def clean_add(self) -> list[Organization]:
        """The organizations that the text names, each once, those already in the audience left out."""
        words = [word for word in re.split(r"[\s,;]+", self.cleaned_data["add"]) if word]
        ids = [pk for word in words if (pk := parse_id(word.lower())) is not None]
        named = Organization.objects.live().filter(Q(slug__in=words) | Q(pk__in=ids))
        found = list(named.order_by("name", "pk"))
        known = {org.slug for org in found} | {str(org.pk) for org in found}
        unknown = [word for word in words if word not in known and word.lower() not in known]
        if unknown:
            raise forms.ValidationError(f"There is no organization {', '.join(unknown[:5])}.")
        there: set[UUID] = {org.pk for org in self.audience}
        return [org for org in found if org.pk not in there]

    def clean(self) -> dict[str, Any]:
        """Raise ValidationError when nothing would change, or nobody would be left."""
        data: dict[str, Any] = super().clean() or {}
        if self.errors:
            return data
        if not data["add"] and not data["remove"]:
            raise forms.ValidationError(
                "Name an organization to add that is not in the audience, or one to remove."
            )
        if not data["add"] and len(data["remove"]) == len(self.removable):
            raise forms.ValidationError(
                "At least one organization has to stay in the audience. Cancel instead?"
            )
        return data


class EndForm(forms.Form):
    """When the reservation is to end."""

    ends_at = forms.DateTimeField(
        required=False,
        label="New end (UTC)",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        input_formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"],
    )
    no_end = forms.BooleanField(required=False, label="No end")

    def clean(self) -> dict[str, Any]:
        """Raise ValidationError unless it is one of a time and no end at all."""
        data: dict[str, Any] = super().clean() or {}
        if not self.errors and bool(data["ends_at"]) == data["no_end"]:
            raise forms.ValidationError("Give a time, or tick “No end”.")
        return data
