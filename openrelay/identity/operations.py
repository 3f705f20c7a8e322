"""What each operation needs: the one place that says it. One that is not here is refused to everyone."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call an operation.

    `action`: what the caller must hold. `hidden`: without it the answer is 404, as if there were nothing.
    `session_only`: an API key is refused whatever it holds. `public`: no credential is asked for.
    `node`: only a node's own credential serves.
    """

    action: str = ""
    hidden: bool = False
    session_only: bool = False
    public: bool = False
    node: bool = False


OPERATIONS: Final[dict[str, Access]] = {
    # reservations
    "cancel_node_reservation": Access("reservation.manage", hidden=True),
    "create_node_reservation": Access("reservation.manage", hidden=True),
    "get_node_reservation": Access("reservation.read", hidden=True),
    "list_node_reservations": Access("reservation.read", hidden=True),
    "list_org_reservations": Access("provider.read"),
    "list_reservation_units": Access("reservation.read", hidden=True),
    "reclaim_reservation_units": Access("reservation.capacity", hidden=True),
    "release_reservation_units": Access("reservation.capacity", hidden=True),
    "update_node_reservation": Access("reservation.manage", hidden=True),
    # provider
    "generate_provisioning_token": Access("provider.write"),
    "get_provider_stats": Access("provider.read"),
    "get_provider_status": Access("provider.read"),
    "list_provider_nodes": Access("provider.read"),
    "list_provisioning_tokens": Access("provider.read"),
    "offboard_provider_node": Access("provider.write"),
    "reclaim_spot_workloads": Access("provider.write"),
    "revoke_provisioning_token": Access("provider.write"),
    "apply_for_provider": Access("provider.write"),
    # A token in the address stands in for a credential here; the view judges both.
    "provider_bootstrap": Access("provider.write", public=True),
    "interruptible_bootstrap": Access(public=True),
    "update_provider_node": Access("provider.write"),
    # vms
    "attach_vm_ssh_key": Access("compute.operate"),
    "create_vm": Access("compute.create"),
    "detach_vm_ssh_key": Access("compute.operate"),
    "get_vm": Access("compute.read"),
    "get_vm_burn": Access("compute.read"),
    "get_vm_detail": Access("compute.read"),
    "get_vm_logs": Access("compute.read", hidden=True),
    "get_vm_metrics": Access("compute.read"),
    "get_vm_ssh_keys": Access("compute.read"),
    "list_org_vms": Access("compute.read"),
    "reboot_vm": Access("compute.operate"),
    "resize_vm_disk": Access("compute.operate"),
    "restart_vm": Access("compute.operate"),
    "set_vm_visibility": Access("compute.operate"),
    "stop_vm": Access("compute.operate"),
    "terminate_vm": Access("compute.delete"),
    # pods
    "create_pod": Access("compute.create"),
    "get_pod_logs": Access("compute.read", hidden=True),
    "list_pod_capacity": Access("compute.read"),
    "list_pods": Access("compute.read"),
    # catalog
    "get_gpu_availability": Access("compute.read"),
    "get_pricing": Access("catalog.read"),
    "get_public_pricing": Access(public=True),
    "list_gpu_models": Access("catalog.read"),
    "list_locations": Access("catalog.read"),
    "list_vm_templates": Access("catalog.read"),
    # account
    "get_me": Access("self.read", session_only=True),
    "whoami": Access("self.read"),
    # access
    "check_access": Access("policy.read"),
    "get_effective_access": Access("self.read"),
    "get_permission_catalog": Access("catalog.read"),
    # api_keys
    "create_org_api_key": Access("apikey.create", session_only=True),
    "list_org_api_keys": Access("apikey.read"),
    "revoke_org_api_key": Access("apikey.revoke"),
    "update_org_api_key": Access("apikey.update", session_only=True),
    # roles
    "create_role": Access("role.manage", session_only=True),
    "delete_role": Access("role.manage", session_only=True),
    "get_role": Access("role.read"),
    "list_roles": Access("role.read"),
    "update_role": Access("role.manage", session_only=True),
    # audit_events
    "list_audit_events": Access("audit.read"),
    # ssh_keys
    "create_org_ssh_key": Access("sshkey.write"),
    "delete_org_ssh_key": Access("sshkey.write"),
    "list_org_ssh_keys": Access("sshkey.read"),
    # organizations
    "get_org": Access("org.read"),
    "delete_org": Access("org.delete", session_only=True),
    "list_org_members": Access("member.read"),
    # webhooks
    "create_org_webhook": Access("webhook.write"),
    "delete_org_webhook": Access("webhook.write"),
    "list_org_webhook_deliveries": Access("webhook.read"),
    "list_org_webhooks": Access("webhook.read"),
    "regenerate_org_webhook_secret": Access("webhook.write"),
    "toggle_org_webhook": Access("webhook.write"),
    "update_org_webhook": Access("webhook.write"),
    # nodes speaking for themselves
    "termination_notice": Access(node=True),
    "agent_inventory": Access(node=True),
    "agent_work": Access(node=True),
    "agent_report": Access(node=True),
    "node_termination_notice": Access(node=True, hidden=True),
}
