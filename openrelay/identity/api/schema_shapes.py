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
            "organizationId": an_id(),
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
        {"id": an_id(), "email": text()},
        {
            "fullName": text(),
            "avatarUrl": text(),
            "defaultOrganizationId": an_id("The organization that the session acts in."),
        },
    ),
    "Me": shape(
        "The signed-in person and where they belong.",
        {"user": ref("UserProfile"), "organizations": listed("OrgMembership")},
    ),
    "WhoamiKey": shape(
        "The API key that was sent.",
        {"id": an_id()},
        {
            "name": text(),
            "prefix": text("The beginning of the secret, to tell keys apart."),
            "expiresAt": time(),
            "expiresInDays": integer("Whole days left."),
            "budget": ref("KeyBudget"),
        },
    ),
    "Whoami": shape(
        "Who the credential stands for. A key brings `key` and its like, a person `userId` and theirs.",
        {
            "organizationId": an_id("The organization that the caller acts in."),
            "principalType": one_of(("api_key", "platform_admin", "user")),
        },
        {
            "organizationName": text(),
            "permissions": words("Every action that the caller may do here."),
            "key": ref("WhoamiKey"),
            "keyKind": one_of(_KINDS),
            "restrictions": ref("KeyRestrictions"),
            "scopes": words("The key's scopes."),
            "ownerUserId": an_id("Whose personal key it is."),
            "userId": an_id(),
            "email": text(),
            "role": text("The person's role here."),
            "roleName": text(),
            "availableOrgs": listed("OrgMembership", "Where else the person may act."),
            "platformAdmin": flag("Present and true for the platform's operators."),
        },
    ),
    "PermissionLevel": shape(
        "One step of an area; it includes the steps before it.",
        {
            "id": text("The permission id, `area.level`."),
            "label": text(),
            "description": text(),
            "actions": words("Every action that it gives."),
            "sessionOnly": flag("Whether only a signed-in person can use what it adds."),
        },
    ),
    "PermissionArea": shape(
        "One subject of permissions.",
        {"id": text(), "label": text(), "levels": listed("PermissionLevel", "Lowest first.")},
    ),
    "BuiltinRole": shape(
        "A role that every organization has.",
        {
            "id": text(),
            "name": text(),
            "description": text(),
            "grants": words("The permission ids it holds."),
        },
        {"all": flag("Present and true for roles that hold all there is.")},
    ),
    "KeyTemplate": shape(
        "A set of permissions to start a key from.",
        {
            "id": text(),
            "name": text(),
            "description": text(),
            "permissions": words(),
            "providerOnly": flag("Whether it is of use to providers only."),
        },
    ),
    "AuthzCatalog": shape(
        "Everything that can be granted.",
        {
            "areas": listed("PermissionArea"),
            "roles": listed("BuiltinRole"),
            "templates": listed("KeyTemplate"),
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
            "description": text(),
            "ipRanges": words("Networks that its holders are restricted to."),
            "endpoints": words("Inference endpoints that its holders are restricted to."),
            "models": words("Models that its holders are restricted to."),
            "memberCount": integer("How many people have it."),
            "createdAt": time(),
            "createdBy": an_id("The person who made it."),
            "updatedAt": time(),
            "updatedBy": an_id("The person who changed it last."),
            "cedar": text("What it permits, as a Cedar policy; where one of an organization's own is shown."),
            "stale": text("Present when the role names permissions that no longer exist: what to do."),
        },
    ),
    "RoleInUse": shape(
        "Why a role cannot be deleted.",
        {
            "error": text("A sentence: what is wrong, and what to do about it."),
            "code": one_of(("ROLE_IN_USE",)),
            "members": ids("The user ids of the people who have it."),
        },
    ),
    "Organization": shape(
        "An organization.",
        {
            "id": an_id(),
            "name": text(),
            "slug": text("A short name, unique."),
            "shortId": text("A short id to read out."),
            "plan": text(),
            "billingEmail": text("Where invoices go; empty when nobody said."),
        },
        {
            "accountStatus": text(
                "`active`; `balance_low`: the balance will not last long; `balance_depleted`: it is used up, "
                "so nothing that is billed is started, and it is stopped after a grace period; "
                "`suspended` by operators: nothing is started, and what runs is stopped after a grace period."
            ),
            "isProvider": flag("Whether it may own nodes."),
            "createdAt": time(),
            "billingName": text("The name on invoices, where it is another."),
            "billingAddressLine1": text(),
            "billingAddressLine2": text(),
            "billingCity": text(),
            "billingCountry": text(),
            "billingPostalCode": text(),
            "taxCountry": text("The country whose tax id it is."),
            "taxId": text(),
        },
    ),
    "Member": shape(
        "A person in an organization.",
        {"userId": an_id(), "role": text("The role's id.")},
        {
            "roleName": text("The role's name for people."),
            "email": text(),
            "fullName": text(),
            "avatarUrl": text(),
            "invitedAt": time(),
            "joinedAt": time(),
            "status": one_of(("active", "invited"), "Whether they have joined."),
        },
    ),
    "EffectiveAccess": shape(
        "What one member or key may do now, everything considered.",
        {
            "principalType": one_of((API_KEY, MEMBER)),
            "principalId": an_id(),
            "actions": words("The actions."),
            "permissions": words("The permission ids whose every action is among them."),
            "allModels": flag("Whether no restriction to some models applies."),
        },
        {
            "active": flag("Whether it can be used at all."),
            "keyKind": one_of(_KINDS),
            "restrictions": ref("KeyRestrictions"),
            "models": words("The models it is restricted to."),
            "roleId": text(),
            "roleName": text(),
        },
    ),
    "AccessDecisionPolicy": shape(
        "Something that had a say.",
        {
            "id": text(),
            "source": one_of(
                (
                    "builtin_role",
                    "custom_policy",
                    "custom_role",
                    "guardrail",
                    "key_restriction",
                    "platform",
                )
            ),
        },
    ),
    "AccessDecision": shape(
        "Whether it would be allowed, and what decides.",
        {
            "allow": flag(),
            "message": text("The reason in a sentence."),
            "permission": text("The action that was judged."),
            "policies": listed("AccessDecisionPolicy"),
        },
        {"deniedBy": one_of(("key", "org_policy", "platform", "role"), "On a refusal: what refused.")},
    ),
    "KeyBudget": shape(
        "What a key may spend, in nano-USD.",
        {"limitNanoUsd": integer(), "period": one_of(PERIODS)},
        {
            "periodEndsAt": time("When the count begins anew; absent for a lifetime budget."),
            "spentNanoUsd": integer("Spent so far in this period."),
        },
    ),
    "ApiKeySummary": shape(
        "An API key, without its secret.",
        {
            "id": an_id(),
            "name": text(),
            "keyPrefix": text("The beginning of the secret."),
            "scopes": words(),
            "createdAt": time(),
        },
        {
            "kind": one_of(_KINDS),
            "note": text(),
            "createdBy": an_id("The person who made it."),
            "ownerUserId": an_id("Whose personal key it is."),
            "expiresAt": time(),
            "lastUsedAt": time("Written at most once a minute."),
            "revokedAt": time(),
            "restrictions": ref("KeyRestrictions"),
            "budget": ref("KeyBudget"),
        },
    ),
    "CreateApiKeyResult": shape(
        "A new API key with its secret, which is shown this once.",
        {
            "id": an_id(),
            "key": text("The secret. Keep it: it cannot be shown again."),
            "keyPrefix": text(),
            "name": text(),
            "organizationId": an_id(),
            "scopes": words(),
            "createdAt": time(),
        },
        {
            "kind": one_of(_KINDS),
            "permissions": words("The ceiling: the permission ids that the key may use."),
            "ownerUserId": an_id("Whose personal key it is."),
            "expiresAt": time(),
            "restrictions": ref("KeyRestrictions"),
            "budget": ref("KeyBudget"),
            "cedar": text("The key's policy as text, where policies are kept so."),
        },
    ),
}
