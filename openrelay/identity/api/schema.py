"""What the operations on accounts, access and API keys take and answer, for the OpenAPI schema."""

from openrelay.api.lists import ListQuery
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import ADA, KEY, LUMEN, ROLE
from openrelay.api.schema.shapes import listed, ref
from openrelay.identity.api import serializers
from openrelay.identity.api.schema_shapes import SHAPES
from openrelay.identity.services.access import API_KEY

_ROLE = {
    "description": "What it is for.",
    "ipRanges": "Networks in CIDR form: from elsewhere its holders are refused, and so are keys they made.",
    "endpoints": "The only inference endpoints that its holders and their keys may call.",
    "models": "The only models that its holders and their keys may call.",
}

BODIES = {
    serializers.KeyRestrictionsBody: Body(
        "KeyRestrictions",
        "What narrows a key beyond its maker's role.",
        {
            "permissions": "The permission ids that the key may use, at most its maker's.",
            "ipRanges": "Networks in CIDR form; from elsewhere the key is refused.",
            "endpoints": "Inference endpoints that the key may call.",
            "models": "Models that the key may call.",
        },
    ),
    serializers.KeyBudgetBody: Body(
        "KeyBudgetRequest",
        "A first budget.",
        {
            "limitNanoUsd": "The limit in nano-USD.",
            "period": "When the count begins anew; `lifetime`: never.",
        },
    ),
    serializers.KeyBudgetEditBody: Body(
        "KeyBudgetEdit",
        "A change of a budget.",
        {
            "limitNanoUsd": "The new limit in nano-USD; 0 removes the budget.",
            "period": "When the count begins anew; `lifetime`: never.",
        },
    ),
    serializers.CreateApiKeyBody: Body(
        "CreateApiKeyRequest",
        "A new API key.",
        {
            "name": "A name for people.",
            "note": "What it is for.",
            "permissions": "The ceiling, as permission ids; each must be held by whoever makes the key.",
            "template": "Start from a template's permissions; ignored beside `permissions`.",
            "scopes": "Older names of what a key is for; each goes only with the permission behind it.",
            "restrictions": "What narrows the key further.",
            "budget": "What the key may spend.",
            "expiresInSeconds": "Seconds until it expires; 0 or less, or absent: never.",
            "kind": "Only `org`: keys belong to the organization.",
            "ephemeral": "Only false; use `expiresInSeconds`.",
            "serviceAccountId": "Not supported; leave it out.",
        },
    ),
    serializers.UpdateApiKeyBody: Body(
        "UpdateApiKeyRequest",
        "A change of a key. Only the budget can change; the other fields are refused, with that reason.",
        {
            "budget": "The change.",
            "name": "Fixed when the key is made.",
            "note": "Fixed when the key is made.",
            "restrictions": "Fixed when the key is made.",
        },
    ),
    serializers.CreateRoleBody: Body(
        "CreateRoleRequest",
        "A new role.",
        {
            "name": "A name for people, once in the organization whatever its case.",
            **_ROLE,
            "permissions": "Permission ids; whoever makes the role must hold every action of theirs.",
        },
    ),
    serializers.UpdateRoleBody: Body(
        "UpdateRoleRequest",
        "A change of a role. What is absent stays as it is; an empty list removes a condition.",
        {
            "name": "The new name.",
            **_ROLE,
            "permissions": "All permission ids that the role is to have, in place of what it had.",
        },
    ),
    serializers.EffectiveQuery: Body(
        "EffectiveQuery",
        "Whose access to show.",
        {
            "principalType": "With `principalId`: a member or a key. Without both: the caller.",
            "principalId": "The member's user id or the key's id.",
        },
    ),
    serializers.AccessCheckBody: Body(
        "AccessCheckRequest",
        "Whose access to what to judge.",
        {
            "action": "The action, `area.verb`.",
            "principalType": "A member or a key.",
            "principalId": "The member's user id or the key's id.",
            "sourceIp": "Judge as from this address; absent: as from the caller's.",
            "endpointId": "The inference endpoint it is about.",
            "model": "The model it is about.",
        },
    ),
}

_MEMBERSHIP = {
    "organizationId": LUMEN,
    "name": "Lumen Labs",
    "role": "owner",
    "roleName": "Owner",
    "permissions": ["compute.create", "compute.read"],
}
_KEY = {
    "id": KEY,
    "name": "ci",
    "keyPrefix": "or_7Qm2",
    "scopes": [],
    "kind": "org",
    "createdAt": "2026-11-02T09:30:00Z",
    "expiresAt": "2027-02-01T00:00:00Z",
    "restrictions": {"permissions": ["compute.write", "catalog.read"], "ipRanges": ["192.0.2.0/24"]},
    "budget": {
        "limitNanoUsd": 50000000000,
        "period": "monthly",
        "periodEndsAt": "2026-12-01T00:00:00Z",
        "spentNanoUsd": 0,
    },
}

_OWN_ROLE = {
    "id": ROLE,
    "name": "Night shift",
    "description": "Restarts what hangs.",
    "builtin": False,
    "permissions": ["audit.read", "compute.operate"],
    "ipRanges": ["192.0.2.0/24"],
    "memberCount": 2,
    "createdAt": "2026-11-02T09:30:00Z",
    "createdBy": ADA,
    "updatedAt": "2026-11-02T09:30:00Z",
    "updatedBy": ADA,
}
_CEDAR = (
    'permit (\n  principal in Role::"…",\n  action in [\n    Action::"compute.operate"\n  ],\n'
    '  resource in Organization::"…"\n) when {\n  (context.sourceIp.isInRange(ip("192.0.2.0/24")))\n};\n'
)

OPERATIONS = {
    "whoami": Operation(
        tag="account",
        summary="Who am I?",
        description="Says who the credential stands for, in which organization it acts, and every action it "
        "may do there now.",
        answer=ref("Whoami"),
        example={
            "organizationId": LUMEN,
            "organizationName": "Lumen Labs",
            "principalType": "api_key",
            "permissions": ["compute.create", "compute.read", "self.read"],
            "key": {"id": KEY, "name": "ci", "prefix": "or_7Qm2"},
            "keyKind": "org",
            "restrictions": {"permissions": ["compute.write"]},
            "scopes": [],
        },
    ),
    "get_me": Operation(
        tag="account",
        summary="The signed-in person",
        description="Shows the person behind a session token, and the organizations they are a member of.",
        answer=ref("Me"),
        example={
            "user": {
                "id": ADA,
                "email": "ada@example.com",
                "fullName": "Ada Example",
                "defaultOrganizationId": LUMEN,
            },
            "organizations": [_MEMBERSHIP],
        },
    ),
    "get_permission_catalog": Operation(
        tag="access",
        summary="What can be granted",
        description="Lists the permissions with their actions, the built-in roles and the templates for "
        "keys.",
        answer=ref("AuthzCatalog"),
        example={
            "areas": [
                {
                    "id": "sshkey",
                    "label": "SSH keys",
                    "levels": [
                        {
                            "id": "sshkey.read",
                            "label": "SSH keys: Read",
                            "description": "See the organization's SSH keys.",
                            "actions": ["sshkey.read"],
                            "sessionOnly": False,
                        }
                    ],
                }
            ],
            "roles": [
                {
                    "id": "owner",
                    "name": "Owner",
                    "description": "Everything in the organization.",
                    "grants": ["sshkey.write"],
                    "all": True,
                }
            ],
            "templates": [
                {
                    "id": "inference",
                    "name": "Inference",
                    "description": "Sees the catalog and usage.",
                    "permissions": ["catalog.read", "usage.read"],
                    "providerOnly": False,
                }
            ],
            "sessionOnlyActions": ["apikey.create", "apikey.update", "role.manage"],
        },
    ),
    "get_effective_access": Operation(
        tag="access",
        summary="What someone may do",
        description="Shows every action that the caller may do now; with `principalType` and `principalId` "
        "(and the action `policy.read`), that another member or key of the organization may do.",
        query=serializers.EffectiveQuery,
        answer=ref("EffectiveAccess"),
        example={
            "principalType": API_KEY,
            "principalId": KEY,
            "actions": ["compute.create", "compute.read", "self.read"],
            "permissions": ["compute.read"],
            "allModels": True,
            "active": True,
            "keyKind": "org",
            "restrictions": {"permissions": ["compute.write"]},
        },
        errors=("NOT_FOUND",),
    ),
    "check_access": Operation(
        tag="access",
        summary="May they do that?",
        description="Judges whether a member or key of the organization may do an action, as from an "
        "address, and names what decides. Nothing is done.",
        body=serializers.AccessCheckBody,
        body_example={
            "action": "compute.create",
            "principalType": API_KEY,
            "principalId": KEY,
            "sourceIp": "198.51.100.7",
        },
        answer=ref("AccessDecision"),
        example={
            "allow": False,
            "message": "This key may not be used from that address.",
            "permission": "compute.create",
            "policies": [{"id": KEY, "source": "key_restriction"}],
            "deniedBy": "key",
        },
        errors=("NOT_FOUND",),
    ),
    "list_roles": Operation(
        tag="roles",
        summary="List roles",
        description="Lists the built-in roles, then the organization's own by name, with how many people "
        "have each. The role `inference` is listed only while somebody has it.",
        answer=listed("Role"),
        example=[
            {
                "id": "viewer",
                "name": "Viewer",
                "description": "Sees everything and changes nothing.",
                "builtin": True,
                "permissions": ["catalog.read", "compute.read"],
                "memberCount": 4,
            },
            _OWN_ROLE,
        ],
    ),
    "create_role": Operation(
        tag="roles",
        summary="Make a role",
        description="Makes a role of the organization. It can give no more than the person who makes it "
        "holds, and where their own role has conditions, the new one has to stay within them.",
        body=serializers.CreateRoleBody,
        body_example={
            "name": "Night shift",
            "description": "Restarts what hangs.",
            "permissions": ["audit.read", "compute.operate"],
            "ipRanges": ["192.0.2.0/24"],
        },
        answer=ref("Role"),
        example={**_OWN_ROLE, "memberCount": 0, "cedar": _CEDAR},
        errors=("ESCALATION_REFUSED", "INVALID_STATE"),
    ),
    "get_role": Operation(
        tag="roles",
        summary="Show a role",
        description="Shows one role; the organization's own come with their policy as text.",
        answer=ref("Role"),
        example={**_OWN_ROLE, "cedar": _CEDAR},
    ),
    "update_role": Operation(
        tag="roles",
        summary="Change a role",
        description="Changes one of the organization's own roles, for everyone who has it from their next "
        "request on. The whole role as it would be is held to what the person who changes it holds. "
        "Built-in roles are refused.",
        body=serializers.UpdateRoleBody,
        body_example={"permissions": ["compute.operate"], "ipRanges": []},
        answer=ref("Role"),
        example={**_OWN_ROLE, "permissions": ["compute.operate"], "cedar": _CEDAR},
        errors=("ESCALATION_REFUSED", "INVALID_STATE"),
    ),
    "delete_role": Operation(
        tag="roles",
        summary="Delete a role",
        description="Deletes one of the organization's own roles, provided nobody has it. Built-in roles "
        "are refused.",
        answer=None,
        errors=("ROLE_IN_USE",),
    ),
    "get_org": Operation(
        tag="organizations",
        summary="Show an organization",
        description="Shows the organization: its names, plan, billing address and the state of its account.",
        answer=ref("Organization"),
        example={
            "id": LUMEN,
            "name": "Lumen Labs",
            "slug": "lumen",
            "shortId": "k7m2qx9dpa",
            "plan": "standard",
            "billingEmail": "billing@example.com",
            "accountStatus": "active",
            "isProvider": False,
            "createdAt": "2026-11-01T08:00:00Z",
        },
    ),
    "list_org_members": Operation(
        tag="organizations",
        summary="List members",
        description="Lists the people in the organization with their roles, in the order they came.",
        query=ListQuery,
        answer=listed("Member"),
        example=[
            {
                "userId": ADA,
                "email": "ada@example.com",
                "fullName": "Ada Example",
                "role": "owner",
                "roleName": "Owner",
                "invitedAt": "2026-11-01T08:00:00Z",
                "joinedAt": "2026-11-01T08:00:00Z",
                "status": "active",
            }
        ],
    ),
    "list_org_api_keys": Operation(
        tag="api_keys",
        summary="List API keys",
        description="Lists the organization's keys, newest first, without their secrets. Revoked and expired "
        "ones stay listed.",
        query=ListQuery,
        answer=listed("ApiKeySummary"),
        example=[{**_KEY, "createdBy": ADA, "lastUsedAt": "2026-11-03T08:00:00Z"}],
    ),
    "create_org_api_key": Operation(
        tag="api_keys",
        summary="Make an API key",
        description="Makes a key of the organization. It can never do more than the person who makes it, "
        "also not later: a key loses what its maker loses. The secret is shown in this answer and never "
        "again.",
        body=serializers.CreateApiKeyBody,
        body_example={
            "name": "ci",
            "permissions": ["compute.write", "catalog.read"],
            "restrictions": {"ipRanges": ["192.0.2.0/24"]},
            "expiresInSeconds": 7776000,
        },
        answer=ref("CreateApiKeyResult"),
        example={
            **_KEY,
            "key": "or_7Qm2…",
            "organizationId": LUMEN,
            "permissions": ["compute.write", "catalog.read"],
        },
        errors=("ESCALATION_REFUSED",),
    ),
    "update_org_api_key": Operation(
        tag="api_keys",
        summary="Change a key's budget",
        description="Sets, changes or removes what a key may spend. All else about a key is fixed.",
        body=serializers.UpdateApiKeyBody,
        body_example={"budget": {"limitNanoUsd": 50000000000, "period": "monthly"}},
        answer=ref("ApiKeySummary"),
        example={**_KEY, "createdBy": ADA},
    ),
    "revoke_org_api_key": Operation(
        tag="api_keys",
        summary="Revoke an API key",
        description="Ends a key now, for good. Repeating it changes nothing.",
        answer=None,
    ),
}

DESCRIPTION = Description(
    operations=OPERATIONS,
    shapes=SHAPES,
    bodies=BODIES,
    codes={
        "ESCALATION_REFUSED": Code(
            403,
            "the key or role would hold more than its maker does; `permission` names what.",
            "A key cannot grant permissions that its author does not have: provider.write. Leave them out.",
            {"permission": "provider.write", "deniedBy": "role"},
        ),
        "ROLE_IN_USE": Code(
            409,
            "somebody has the role; `members` are their user ids.",
            "The role Night shift is in use. Give whoever has it another role first: 1 person has it.",
            {"members": [ADA]},
            shape="RoleInUse",
        ),
    },
    tags={
        "account": "Who the caller is.",
        "access": "What can be granted, and who may do what.",
        "roles": "What members may do, built-in and of an organization's own.",
        "organizations": "An organization and its people.",
        "api_keys": "Credentials for programs.",
    },
)
