"""A role in the words of the Cedar policy language, for those who keep their policies so."""

import json
from collections.abc import Sequence

from openrelay.identity.roles import HeldRole


def policy(role: HeldRole, organization_id: object, *, platform_ops: bool) -> str:
    """What a custom role permits, as one Cedar policy."""
    actions = ",\n    ".join(
        f"Action::{_quoted(action)}" for action in sorted(role.actions(platform_ops=platform_ops))
    )
    conditions = []
    if role.ip_ranges:
        ranges = " || ".join(f"context.sourceIp.isInRange(ip({_quoted(cidr)}))" for cidr in role.ip_ranges)
        conditions.append(f"({ranges})")
    if role.endpoints:
        conditions.append(_one_of("endpoint", role.endpoints))
    if role.models:
        conditions.append(_one_of("model", role.models))
    when = " when {\n  " + " &&\n  ".join(conditions) + "\n}" if conditions else ""
    return (
        "permit (\n"
        f"  principal in Role::{_quoted(role.id)},\n"
        f"  action in [\n    {actions}\n  ],\n"
        f"  resource in Organization::{_quoted(str(organization_id))}\n"
        f"){when};\n"
    )


def _one_of(name: str, values: Sequence[str]) -> str:
    listed = ", ".join(_quoted(value) for value in values)
    return f"(!(context has {name}) || [{listed}].contains(context.{name}))"


def _quoted(text: str) -> str:
    # JSON's escapes of quotes, backslashes, tabs and line ends are Cedar's too; its others never come up.
    return json.dumps(text, ensure_ascii=False)
