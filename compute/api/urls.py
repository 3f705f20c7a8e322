"""Routes of compute."""

from django.urls import include, path

from compute.api import agent, burn, catalog, guest, lifecycle, notices, pods, prices, ssh_keys, vm_keys, vms

# Grouped by how they begin: a path is compared with its own group alone. What is asked most comes first.
_org = [
    path("vms/create", vms.CreateVm.as_view()),
    path("vms", vms.OrgVms.as_view()),
    path("ssh-keys", ssh_keys.OrgSshKeys.as_view()),
    path("ssh-keys/create", ssh_keys.CreateSshKey.as_view()),
    path("ssh-keys/<str:key_id>", ssh_keys.OneSshKey.as_view()),
]
_vm = [
    path("", vms.OneVm.as_view()),
    path("/burn", burn.VmBurn.as_view()),
    path("/detail", vms.VmDetail.as_view()),
    path("/metrics", guest.VmMetrics.as_view()),
    path("/reboot", lifecycle.RebootVm.as_view()),
    path("/resize-disk", lifecycle.ResizeVmDisk.as_view()),
    path("/restart", lifecycle.RestartVm.as_view()),
    path("/ssh-keys", vm_keys.VmSshKeys.as_view()),
    path("/ssh-keys/<str:key_id>", vm_keys.OneVmSshKey.as_view()),
    path("/stop", lifecycle.StopVm.as_view()),
    path("/terminate", vms.TerminateVm.as_view()),
    path("/visibility", lifecycle.VmVisibility.as_view()),
]
urlpatterns = [
    path("gpu-availability", catalog.GpuAvailability.as_view()),
    path("agent/inventory", agent.AgentInventory.as_view()),
    path("agent/work", agent.AgentWork.as_view()),
    path("agent/reports", agent.AgentReports.as_view()),
    path("pods", pods.Pods.as_view()),
    path("pods/capacity", pods.PodsCapacity.as_view()),
    path("gpu-models", catalog.GpuModels.as_view()),
    path("locations", prices.Locations.as_view()),
    path("vm-templates", prices.VmTemplates.as_view()),
    path("pricing", prices.Pricing.as_view()),
    path("public/pricing", prices.PublicPricing.as_view()),
    path("nodes/termination-notice", notices.NodeNotice.as_view()),
    path("orgs/<str:org_id>/", include(_org)),
    path("vms/<str:vm_id>", include(_vm)),
]
