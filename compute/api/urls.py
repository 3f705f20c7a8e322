"""Routes of compute."""

from django.urls import path

from compute.api import agent, burn, catalog, prices, ssh_keys, vms

urlpatterns = [
    path("orgs/<str:org_id>/vms/create", vms.CreateVm.as_view()),
    path("orgs/<str:org_id>/vms", vms.OrgVms.as_view()),
    path("vms/<str:vm_id>", vms.OneVm.as_view()),
    path("vms/<str:vm_id>/burn", burn.VmBurn.as_view()),
    path("vms/<str:vm_id>/terminate", vms.TerminateVm.as_view()),
    path("orgs/<str:org_id>/ssh-keys", ssh_keys.OrgSshKeys.as_view()),
    path("orgs/<str:org_id>/ssh-keys/create", ssh_keys.CreateSshKey.as_view()),
    path("gpu-models", catalog.GpuModels.as_view()),
    path("gpu-availability", catalog.GpuAvailability.as_view()),
    path("locations", prices.Locations.as_view()),
    path("vm-templates", prices.VmTemplates.as_view()),
    path("pricing", prices.Pricing.as_view()),
    path("public/pricing", prices.PublicPricing.as_view()),
    path("agent/work", agent.AgentWork.as_view()),
    path("agent/reports", agent.AgentReports.as_view()),
]
