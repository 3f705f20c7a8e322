"""The operations on the SSH keys that open a VM or pod."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import present_detail, serializers
from compute.api.vms import VmView
from compute.services.access.attachments import attach, attached_keys, detach
from openrelay.core.ids import parse_id


class VmSshKeys(VmView):
    """The keys of a VM or pod."""

    operations = {"GET": "get_vm_ssh_keys", "POST": "attach_vm_ssh_key"}

    def get(self, request: Request, vm_id: str) -> Response:
        """List the organization's SSH keys, and which of them open the VM or pod."""
        return Response(
            [present_detail.ssh_key(key, attached=opens) for key, opens in attached_keys(self.workload)]
        )

    def post(self, request: Request, vm_id: str) -> Response:
        """Let one more key open the VM or pod. Safe to repeat."""
        data = self.read(serializers.AttachSshKey)
        key_id = parse_id(data["ssh_key_id"])
        attach(caller=self.caller, workload_id=self.workload.pk, ssh_key_id=key_id)
        return Response(status=204)


class OneVmSshKey(VmView):
    """One key of a VM or pod."""

    operations = {"DELETE": "detach_vm_ssh_key"}

    def delete(self, request: Request, vm_id: str, key_id: str) -> Response:
        """Let a key open the VM or pod no more. Safe to repeat; the only key stays."""
        detach(caller=self.caller, workload_id=self.workload.pk, ssh_key_id=parse_id(key_id))
        return Response(status=204)
