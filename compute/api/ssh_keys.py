"""The SSH key operations."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import presenters, serializers
from compute.models import SshKey
from compute.services.access.attachments import delete_key
from compute.services.access.ssh_keys import blocked_names, create_key
from openrelay.api.lists import ListQuery, answer_list
from openrelay.api.views import OrgView
from openrelay.core.ids import parse_id


class OrgSshKeys(OrgView):
    """The SSH keys of an organization."""

    operations = {"GET": "list_org_ssh_keys"}

    def get(self, request: Request, org_id: str) -> HttpResponseBase:
        """List the organization's SSH keys, the newest first."""
        keys = SshKey.objects.of(self.caller.organization_id).with_use()
        return answer_list(keys, _shown, request=request, **self.read_query(ListQuery))


def _shown(keys: list[Any]) -> list[dict[str, Any]]:
    blocked = blocked_names(keys)
    return [
        presenters.ssh_key(key, attached=key.attached_vm_count, blocking=blocked.get(key.pk, ()))
        for key in keys
    ]


class CreateSshKey(OrgView):
    """Where SSH keys are added."""

    operations = {"POST": "create_org_ssh_key"}

    def post(self, request: Request, org_id: str) -> Response:
        """Add an SSH public key."""
        data = self.read(serializers.CreateSshKey)
        return Response(presenters.ssh_key(create_key(caller=self.caller, **data)))


class OneSshKey(OrgView):
    """One SSH key of an organization."""

    operations = {"DELETE": "delete_org_ssh_key"}

    def delete(self, request: Request, org_id: str, key_id: str) -> Response:
        """Delete an SSH key, unless a live VM or pod has no other."""
        delete_key(caller=self.caller, ssh_key_id=parse_id(key_id))
        return Response(status=204)
