"""How identity's objects read, for the OpenAPI schema."""

from openrelay.api.schema.shapes import (
    an_id,
    flag,
    ids,
    integer,
    listed,
    one_of,
    ref,
    shape,
    text,
    time,
    words,
)
from openrelay.identity.services.access import API_KEY, MEMBER
from openrelay.identity.services.keys import PERIODS

_KINDS = ("legacy", "org", "personal")

SHAPES = {
    "OrgMembership": shape(
        "An organization that a person is a member of, and what they may do there.",
        {
            "organizationId": an_id("The organization's id."),
            "name": text("The organization's name."),
            "role": text("The role's id."),
        },
        {
            "roleName": text("The role's name for people."),
            "permissions": words("The actions that the role gives."),
            "maxKeyLifetimeDays": integer("The longest that a key made here may live, in days."),
        },
    ),
    "UserProfile": shape(
        "A person.",
        {"id": an_id("The person's id."), "email": text("The person's email address.")},
        {
            "fullName": text("The person's name."),
            "avatarUrl": text("The address of a picture of the person."),
            "defaultOrganizationId": an_id("The organization that the session acts in."),
        },
    ),
    "Me": shape(
        "The signed-in person and where they belong.",
        {
            "user": ref("UserProfile", "The person."),
            "organizations": listed("OrgMembership", "The organizations that the person is a member of."),
        },
    ),
    "WhoamiKey": shape(
        "The API key that was sent.",
        {"id": an_id("The key's id.")},
        {
            "name": text("The key's name."),
            "prefix": text("The beginning of the secret, to tell keys apart."),
            "expiresAt": time("When the key expires; absent if it never does."),
            "expiresInDays": integer("Whole days left."),
            "budget": ref("KeyBudget", "What may be spent by the key."),
        },
    ),
    "Whoami": shape(
        "Who the credential stands for. A key brings `key` and its like, a person `userId` and theirs.",
        {
            "organizationId": an_id("The organization that the caller acts in."),
            "principalType": one_of(
                ("api_key", "platform_admin", "user"), "Whether a key, a person or an operator is asking."
            ),
        },
        {
            "organizationName": text("The name of the organization that the caller acts in."),
            "permissions": words("Every action that the caller may do here."),
            "key": ref("WhoamiKey", "The key that was used; absent for a person."),
            "keyKind": one_of(_KINDS, "Whether the key belongs to the organization or to a person."),
            "restrictions": ref("KeyRestrictions", "What the key is restricted to."),
            "scopes": words("The key's scopes."),
            "ownerUserId": an_id("Whose personal key it is."),
            "userId": an_id("The person's id; absent for a key."),
            "email": text("The person's email address; absent for a key."),
            "role": text("The person's role here."),
            "roleName": text("The name of the person's role."),
            "availableOrgs": listed("OrgMembership", "Where else the person may act."),
            "platformAdmin": flag("Present and true for the platform's operators."),
        },
    ),
    "PermissionLevel": shape(
        "One step of an area; it includes the steps before it.",
        {
            "id": text("The permission id, `area.level`."),
            "label": text("The permission's name for people."),
            "description": text("What the permission allows."),
            "actions": words("Every action that it gives."),
            "sessionOnly": flag("Whether only a signed-in person can use what it adds."),
        },
    ),
    "PermissionArea": shape(
        "One subject of permissions.",
        {
            "id": text("The area's id, such as `compute`."),
            "label": text("The area's name for people."),
            "levels": listed("PermissionLevel", "Lowest first."),
        },
    ),
    "BuiltinRole": shape(
        "A role that every organization has.",
        {
            "id": text("The role's id."),
            "name": text("The role's name."),
            "description": text("What the role is for."),
            "grants": words("The permission ids it holds."),
        },
        {"all": flag("Present and true for roles that hold all there is.")},
    ),
    "KeyTemplate": shape(
        "A set of permissions to start a key from.",
        {
            "id": text("The template's id."),
            "name": text("The template's name."),
            "description": text("What a key made from it is for."),
            "permissions": words("The permission ids that such a key gets."),
            "providerOnly": flag("Whether it is of use to providers only."),
        },
    ),
    "AuthzCatalog": shape(
        "Everything that can be granted.",
        {
            "areas": listed("PermissionArea", "The areas, each with its permissions."),
            "roles": listed("BuiltinRole", "The built-in roles."),
            "templates": listed("KeyTemplate", "Sets of permissions for keys of common uses."),
            "sessionOnlyActions": words("Actions that no API key can hold."),
        },
    ),
    "Role": shape(
        "A role, built-in or the organization's own.",
        {
            "id": text("A built-in role's name, or the id of one of the organization's own."),
            "name": text("A name for people."),
            "builtin": flag("Whether every organization has it, and nobody can change it."),
            "permissions": words("The permission ids it gives."),
        },
        {
            "description": text("What the role is for."),
            "ipRanges": words("Networks that its holders are restricted to."),
            "endpoints": words("Inference endpoints that its holders are restricted to."),
            "models": words("Models that its holders are restricted to."),
            "memberCount": integer("How many people have it."),
            "createdAt": time("When the role was made; absent for a built-in role."),
            "createdBy": an_id("The person who made it."),
            "updatedAt": time("When the role was last changed."),
            "updatedBy": an_id("The person who changed it last."),
            "cedar": text("What it permits, as a Cedar policy; where one of an organization's own is shown."),
            "stale": text("Present when the role names permissions that no longer exist: what to do."),
        },
    ),
    "RoleInUse": shape(
        "Why a role cannot be deleted.",
        {
            "error": text("A sentence: what is wrong, and what to do about it."),
            "code": one_of(("ROLE_IN_USE",), "Always `ROLE_IN_USE`."),
            "members": ids("The user ids of the people who have it."),
        },
    ),
    "Organization": shape(
        "An organization.",
        {
            "id": an_id("The organization's id."),
            "name": text("The organization's name."),
            "slug": text("A short name, unique."),
            "shortId": text("A short id to read out."),
            "plan": text("Its plan."),
            "billingEmail": text("Where invoices go; empty when nobody said."),
        },
        {
            "accountStatus": text(
                "`active`; `balance_low`: the balance will not last long; `balance_depleted`: it is used up, "
                "so nothing that is billed is started, and it is stopped after a grace period; "
                "`suspended` by operators: nothing is started, and what runs is stopped after a grace period."
            ),
            "isProvider": flag("Whether it may own nodes."),
            "createdAt": time("When it was created."),
            "billingName": text("The name on invoices, where it is another."),
            "billingAddressLine1": text("The first line of its billing address."),
            "billingAddressLine2": text("The second line of its billing address."),
            "billingCity": text("The city of its billing address."),
            "billingCountry": text("The country of its billing address."),
            "billingPostalCode": text("The postal code of its billing address."),
            "taxCountry": text("The country whose tax id it is."),
            "taxId": text("Its tax id."),
        },
    ),
    "Member": shape(
        "A person in an organization.",
        {"userId": an_id("The person's id."), "role": text("The role's id.")},
        {
            "roleName": text("The role's name for people."),
            "email": text("The person's email address."),
            "fullName": text("The person's name."),
            "avatarUrl": text("The address of a picture of the person."),
            "invitedAt": time("When the person was invited."),
            "joinedAt": time("When the person joined."),
            "status": one_of(("active", "invited"), "Whether they have joined."),
        },
    ),
    "EffectiveAccess": shape(
        "What one member or key may do now, everything considered.",
        {
            "principalType": one_of((API_KEY, MEMBER), "Whether the principal is a key or a member."),
            "principalId": an_id("The id of the key or of the person."),
            "actions": words("The actions."),
            "permissions": words("The permission ids whose every action is among them."),
            "allModels": flag("Whether no restriction to some models applies."),
        },
        {
            "active": flag("Whether it can be used at all."),
            "keyKind": one_of(_KINDS, "Of a key: whether it belongs to the organization or to a person."),
            "restrictions": ref("KeyRestrictions", "Of a key: what it is restricted to."),
            "models": words("The models it is restricted to."),
            "roleId": text("Of a member: the id of the role."),
            "roleName": text("Of a member: the name of the role."),
        },
    ),
    "AccessDecisionPolicy": shape(
        "Something that had a say.",
        {
            "id": text("The policy's id."),
            "source": one_of(
                (
                    "builtin_role",
                    "custom_policy",
                    "custom_role",
                    "guardrail",
                    "key_restriction",
                    "platform",
                ),
                "Where the policy comes from.",
            ),
        },
    ),
    "AccessDecision": shape(
        "Whether it would be allowed, and what decides.",
        {
            "allow": flag("Whether the principal may perform the action."),
            "message": text("The reason in a sentence."),
            "permission": text("The action that was judged."),
            "policies": listed("AccessDecisionPolicy", "The policies that decided."),
        },
        {"deniedBy": one_of(("key", "org_policy", "platform", "role"), "On a refusal: what refused.")},
    ),
    "KeyBudget": shape(
        "What a key may spend, in nano-USD.",
        {
            "limitNanoUsd": integer("What may be spent in one period, in nano-USD."),
            "period": one_of(PERIODS, "How often the budget begins anew."),
        },
        {
            "periodEndsAt": time("When the count begins anew; absent for a lifetime budget."),
            "spentNanoUsd": integer("Spent so far in this period."),
        },
    ),
    "ApiKeySummary": shape(
        "An API key, without its secret.",
        {
            "id": an_id("The key's id."),
            "name": text("The key's name."),
            "keyPrefix": text("The beginning of the secret."),
            "scopes": words("The permission ids of the key, under their older name."),
            "createdAt": time("When the key was created."),
        },
        {
            "kind": one_of(_KINDS, "Whether the key belongs to the organization or to a person."),
            "note": text("A note on what the key is for."),
            "createdBy": an_id("The person who made it."),
            "ownerUserId": an_id("Whose personal key it is."),
            "expiresAt": time("When the key expires; absent if it never does."),
            "lastUsedAt": time("Written at most once a minute."),
            "revokedAt": time("When the key was revoked; absent while it is valid."),
            "restrictions": ref("KeyRestrictions", "What the key is restricted to."),
            "budget": ref("KeyBudget", "What may be spent by the key."),
        },
    ),
    "CreateApiKeyResult": shape(
        "A new API key with its secret, which is shown this once.",
        {
            "id": an_id("The key's id."),
            "key": text("The secret. Keep it: it cannot be shown again."),
            "keyPrefix": text("The first characters of the key, by which it can be told from others."),
            "name": text("The key's name."),
            "organizationId": an_id("The organization that the key belongs to."),
            "scopes": words("The permission ids of the key, under their older name."),
            "createdAt": time("When the key was created."),
        },
        {
            "kind": one_of(_KINDS, "Whether the key belongs to the organization or to a person."),
            "permissions": words("The ceiling: the permission ids that the key may use."),
            "ownerUserId": an_id("Whose personal key it is."),
            "expiresAt": time("When the key expires; absent if it never does."),
            "restrictions": ref("KeyRestrictions", "What the key is restricted to."),
            "budget": ref("KeyBudget", "What may be spent by the key."),
            "cedar": text("The key's policy as text, where policies are kept so."),
        },
    ),
}
