"""Faults to plant in what a workload gets beside its GPUs: its place, its share of a host, its address."""

from tests.mutants.mutant import Mutant, one

_SHARES = "compute/domain/host_shares.py"
_ADMISSION = "compute/services/placement/pod_admission.py"
_CLAIMS = "compute/services/lifecycle/claims.py"

SHARES = (
    # Where it may be, and what it starts from
    one(
        "region-ignored",
        "a VM is where its regions say, unless it may be elsewhere",
        "compute/services/placement/pool.py",
        "        regions=() if request.allow_fallback else regions,\n",
        "",
    ),
    one(
        "fallback-first",
        "a VM that may be elsewhere is where it prefers while there is room",
        "compute/services/placement/pool.py",
        "for among in (regions, frozenset[str]()) if fallback",
        "for among in (frozenset[str](),) if fallback",
    ),
    one(
        "cpu-region-ignored",
        "a VM without GPUs is where its regions say",
        "compute/services/placement/cpu_hosts.py",
        "        open_nodes = open_nodes.filter(~there | Q(location=None) if elsewhere else there)\n",
        "        open_nodes = open_nodes.filter(there | ~there | Q(location=None))\n",
    ),
    one(
        "template-for-any-gpu",
        "a template suits the GPU model",
        "compute/services/requests/templates.py",
        "        return model_id in named\n",
        "        return bool(model_id)\n",
    ),
    one(
        "withdrawn-template",
        "a template that is withdrawn starts nothing new",
        "compute/services/requests/templates.py",
        "VmTemplate.objects.offered().filter(pk=pk).first()",
        "VmTemplate.objects.filter(pk=pk).first()",
    ),
    # What of a host goes with GPUs
    one(
        "memory-uncounted",
        "what guests take of their host's memory others do not get",
        "compute/domain/host_usage.py",
        "    ram_mb = sum(footprint_mb(guest.mem_mb) for guest in there if guest.mem_mb)\n",
        "    ram_mb = 0\n",
    ),
    one(
        "below-the-floor",
        "memory below the floor is raised to it",
        _SHARES,
        "    memory = max(asked_mb or 0, least_mb) or None\n",
        "    memory = asked_mb or least_mb or None\n",
    ),
    one(
        "above-the-share",
        "nobody gets more memory than the share of their GPUs",
        _SHARES,
        "    if memory is not None and most_mb is not None and memory > most_mb:\n        return None\n",
        "",
    ),
    one(
        "all-of-it-shared",
        "a pod's shared memory is half of its memory at most",
        _SHARES,
        "most_shm = None if memory is None else memory // 2",
        "most_shm = memory",
    ),
    one(
        "restart-at-what-was",
        "a VM whose share shrank starts with what there is",
        _SHARES,
        "            return None\n        memory = most_mb\n",
        "            return None\n        return None\n",
    ),
    one(
        "request-stays",
        "what the node cannot give any more is asked for no more",
        "compute/services/placement/commit.py",
        "if asked_mb is not None and allocation.guest_mem_mb is not None and asked_mb > ",
        "if asked_mb is not None and allocation.guest_mem_mb is not None and not asked_mb > ",
    ),
    one(
        "victims-disk",
        "whoever is preempted leaves its disk to its successor",
        "compute/services/placement/decide.py",
        "disk_gb=snapshot.disk_gb - sum(freed.values()))",
        "disk_gb=snapshot.disk_gb)",
    ),
    one(
        "resize-without-limit",
        "a disk grows within what its host has",
        "compute/services/requests/resize.py",
        "        if most and new_size_gb > most:\n",
        "        if most and new_size_gb < most:\n",
    ),
    one(
        "resize-on-a-full-host",
        "a disk grows within what its host has left",
        "compute/services/requests/resize.py",
        "(left.disk_gb is not None and new_size_gb > left.disk_gb)",
        "(left.disk_gb is not None and new_size_gb < 0)",
    ),
    one(
        "reserved-share-spent",
        "VMs without GPUs leave reserved units their share",
        "compute/domain/cpu_shares.py",
        "host.cpu_cores - taken_vcpu - vcpu * host.kept_gpus if",
        "host.cpu_cores - taken_vcpu if",
    ),
    # What pods need beside room
    Mutant(
        "old-agent-infiniband",
        "a pod that is to have InfiniBand goes to agents that give it",
        (
            ("compute/services/fleet/pod_levels.py", "INFINIBAND if on_it else 0", "0"),
            (_ADMISSION, "level < INFINIBAND and on_infiniband(organization_id)", "level < 0"),
        ),
    ),
    one(
        "old-agent-restart",
        "a pod that is to have InfiniBand does not start on an agent that cannot give it",
        _ADMISSION,
        "level < INFINIBAND and on_infiniband(pod.organization_id)",
        "level < 0 and on_infiniband(pod.organization_id)",
    ),
    one(
        "old-agent-amd",
        "AMD's GPUs start on agents that grant them",
        _ADMISSION,
        "level < AMD_GRANT and pod.gpu_model is not None",
        "level < 0 and pod.gpu_model is not None",
    ),
    one(
        "no-address-no-matter",
        "a pod that is to have an address has one",
        _ADMISSION,
        "    return lease_address(held, pod_id) is not None\n",
        "    lease_address(held, pod_id)\n    return True\n",
    ),
    one(
        "address-kept",
        "an address is free once its guest is gone",
        _CLAIMS,
        "        release_addresses([run.workload_id])\n",
        "        pass\n",
    ),
    one(
        "address-taken-along",
        "a guest that goes late leaves the address to the one that has it",
        _CLAIMS,
        " and not Run.objects.open().filter(workload=run.workload_id).exists():\n",
        ":\n",
    ),
    one(
        "pod-without-its-volume",
        "a pod ends with its node, whether or not a task has noticed",
        "compute/services/requests/restart.py",
        "if elsewhere and (workload.status == states.FAILED or workload.kind == Workload.Kind.POD):",
        "if elsewhere and workload.status == states.FAILED:",
    ),
)
