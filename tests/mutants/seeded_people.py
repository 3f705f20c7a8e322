"""Faults to plant in what costs what, and in who may do what."""

from tests.mutants.mutant import Mutant, one

_ACCOUNTS = "compute/services/billing/accounts.py"
_KEYS = "openrelay/identity/services/keys.py"
_MEMBERSHIPS = "openrelay/identity/services/memberships.py"
_STOPS = "compute/services/lifecycle/account_stops.py"
_PRICES = "compute/services/billing/prices.py"

PEOPLE = (
    # Money
    one(
        "rate-not-locked",
        "the rate locks when a session opens",
        "compute/services/billing/burn.py",
        "cents = session.cents_per_hour if session else hourly_cents(workload) or 0",
        "cents = hourly_cents(workload) or 0",
    ),
    one(
        "interrupted-billed",
        "interrupted time is free",
        "compute/services/lifecycle/transitions.py",
        "    else:\n        ended = [pk for pk, status",
        "    elif target != states.INTERRUPTED:\n        ended = [pk for pk, status",
    ),
    one(
        "silence-billed",
        "nobody pays for a node that is silent",
        "compute/services/billing/usage_sessions.py",
        'ended_at=Greatest(F("started_at"), gone_at)',
        "ended_at=Value(at)",
    ),
    one(
        "own-reservation-billed",
        "a provider pays nothing on its own node for what is reserved to it",
        _PRICES,
        "return owner_id == organization_id and bool(holds) and None not in holds",
        "return owner_id == organization_id and not bool(holds)",
    ),
    one(
        "own-node-free",
        "a provider pays on its own node for what is not reserved to it",
        _PRICES,
        "return owner_id == organization_id and bool(holds) and None not in holds",
        "return owner_id == organization_id",
    ),
    # Accounts
    one(
        "suspended-starts",
        "who is suspended starts nothing",
        _ACCOUNTS,
        "    if status != ACTIVE:\n",
        "    if not status:\n",
    ),
    Mutant(
        "spent-not-counted",
        "what is spent is not there to spend",
        (
            (_ACCOUNTS, "balance - int(cents)", "balance"),
            (_ACCOUNTS, "balance - spent(caller.organization_id).cents", "balance"),
        ),
    ),
    one(
        "no-grace",
        "nobody is stopped before the grace period is over",
        _STOPS,
        "return dt.timedelta(minutes=number)",
        "return dt.timedelta(0)",
    ),
    one(
        "free-stopped",
        "what is not billed runs on",
        "compute/services/billing/usage_sessions.py",
        "    return free | {pk for pk in holds",
        "    return set() & {pk for pk in holds",
    ),
    one(
        "not-enabled-reserved",
        "nothing is reserved for who has no reservations",
        "reservations/services/contracts.py",
        '    if names:\n        raise Conflict(\n            f"Reservations are not enabled',
        '    if names is None:\n        raise Conflict(\n            f"Reservations are not enabled',
    ),
    # Repeats
    one(
        "repeat-does-it-again",
        "a repeated Idempotency-Key does nothing again",
        "openrelay/api/idempotency.py",
        "        if kept is None:\n",
        "        if kept is None or kept[0] == self.fingerprint:\n",
    ),
    one(
        "repeat-of-another",
        "an Idempotency-Key stands for one request",
        "openrelay/api/idempotency.py",
        "        if fingerprint != self.fingerprint:\n",
        "        if not fingerprint:\n",
    ),
    # Who may
    one(
        "others-workloads",
        "another organization's workload is not there",
        "compute/querysets.py",
        "return self.filter(organization_id=caller.organization_id)",
        "return self.all()",
    ),
    one(
        "key-over-its-maker",
        "no key exceeds its maker",
        "openrelay/identity/services/escalation.py",
        "    if not beyond:\n        return\n",
        "    if beyond is not None:\n        return\n",
    ),
    one(
        "role-kept-in-key",
        "a key goes no further than its maker's role of now",
        "openrelay/identity/services/callers.py",
        "        actions &= facts.maker_role.actions(platform_ops=facts.is_platform_ops)\n",
        "        pass\n",
    ),
    one(
        "budget-for-ever",
        "a budget of 0 is none",
        _KEYS,
        "        if budget.limit == 0:\n",
        "        if budget.limit == -1:\n",
    ),
    one(
        "budget-forgets-its-period",
        "what a change of a budget does not name stays",
        _KEYS,
        "budget.period or key.budget_period or PERIODS[0]",
        "budget.period or PERIODS[0]",
    ),
    Mutant(
        "keys-edit-keys",
        "people edit keys, keys do not",
        (
            (
                "openrelay/identity/services/callers.py",
                "(actions_of(facts.permissions) | EVERYONE) - SESSION_ONLY_ACTIONS",
                "actions_of(facts.permissions) | EVERYONE",
            ),
            (
                "openrelay/identity/operations.py",
                '"update_org_api_key": Access("apikey.update", session_only=True)',
                '"update_org_api_key": Access("apikey.update")',
            ),
        ),
    ),
    one(
        "revoked-key-serves",
        "a revoked key is dead",
        "openrelay/identity/services/callers.py",
        "    if facts.revoked_at is not None:\n",
        "    if facts.revoked_at is None and facts.revoked_at is not None:\n",
    ),
    one(
        "who-left-stays",
        "who is removed is no member",
        _MEMBERSHIPS,
        "    membership.delete()\n",
        "",
    ),
    one(
        "role-of-before",
        "a member's other role counts from then on",
        _MEMBERSHIPS,
        "    membership.save(update_fields=list(given))\n",
        "",
    ),
    one(
        "keys-outlive-their-maker",
        "keys do nothing once their maker has left",
        "openrelay/identity/services/callers.py",
        "        if facts.maker_role is None:\n            return frozenset()\n",
        "        if facts.maker_role is None:\n            return actions\n",
    ),
)
