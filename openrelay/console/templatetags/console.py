"""Links between pages of the console that only an operator who may open the page is given."""

from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html

from openrelay.console.access import can_view_named

register = template.Library()


@register.simple_tag(takes_context=True)
def page_link(context: Any, model: str, pk: object, *texts: object) -> str:
    """A link to the page of an object of `model` ("app_model"), or its text for who may not open it."""
    text = " ".join(map(str, texts))
    if not can_view_named(context["request"], model):
        return format_html("<bdi>{}</bdi>", text)
    return format_html('<a href="{}"><bdi>{}</bdi></a>', reverse(f"admin:{model}_change", args=[pk]), text)
