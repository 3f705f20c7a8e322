from openrelay.identity.models.api_key import ApiKey
from openrelay.identity.models.membership import Membership
from openrelay.identity.models.organization import Organization
from openrelay.identity.models.role import Role
from openrelay.identity.models.session_token import SessionToken
from openrelay.identity.models.user import User

__all__ = ["ApiKey", "Membership", "Organization", "Role", "SessionToken", "User"]
