"""GPU units: the smallest hardware that is reserved, claimed or sold."""

from collections.abc import Sequence

from django.db import models

from nodes.querysets import GpuUnitQuerySet
from openrelay.core.canonical import PCI_ADDRESS_PATTERN
from openrelay.core.ids import new_id

# The allocation classes that can be reserved: VFIO passthrough to a VM, or a device request of a pod.
VFIO_GROUP = "vfio-group"
DEVICE_REQUEST = "device-request"
RESERVABLE_CLASSES = (VFIO_GROUP, DEVICE_REQUEST)


def explain_not_reservable(
    *, gone: bool, alloc_class: str, sellable: bool, not_sellable_reason: str, failed: Sequence[str]
) -> str:
    """Return why a unit's hardware cannot be reserved, as the end of a sentence; empty if it can.

    Ignores existing reservations and claims. `failed` has the addresses of the unit's failed GPUs: such a
    unit cannot be reserved or sold until the agent reports the GPUs healthy again.
    """
    if gone:
        return "it is gone from the node"
    if alloc_class not in RESERVABLE_CLASSES:
        return f"its class {alloc_class} cannot be reserved"
    if not sellable:
        return not_sellable_reason or "it is not for sale"
    return f"its GPU {', '.join(failed)} failed" if failed else ""


class GpuUnit(models.Model):
    """One IOMMU group of a node with its GPUs.

    `address` is the public id, unique within the node. A unit that disappears keeps its row with `gone_at`
    set, and uses the row again if it returns.
    """

    VFIO_GROUP = VFIO_GROUP
    DEVICE_REQUEST = DEVICE_REQUEST
    RESERVABLE_CLASSES = RESERVABLE_CLASSES

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.PROTECT, related_name="units")
    address = models.CharField(max_length=32, help_text="PCI address, such as 0000:04:00.0")
    alloc_class = models.CharField(max_length=32)
    gpu_model = models.ForeignKey("nodes.GpuModel", models.PROTECT, related_name="units")
    gpu_count = models.PositiveSmallIntegerField()
    sellable = models.BooleanField(default=True)
    not_sellable_reason = models.CharField(max_length=200, blank=True)
    iommu_group = models.PositiveIntegerField(null=True, blank=True)
    numa_node = models.PositiveSmallIntegerField(null=True, blank=True)
    gone_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = GpuUnitQuerySet.as_manager()

    class Meta:
        ordering = ("node", "address")
        constraints = [
            models.UniqueConstraint(fields=["node", "address"], name="unit_address_once"),
            # The target of composite foreign keys that ensure that a unit belongs to the named node.
            models.UniqueConstraint(fields=["id", "node"], name="unit_of_node"),
            models.CheckConstraint(condition=models.Q(gpu_count__gte=1), name="unit_has_a_gpu"),
            # A unit that is gone may have an older, non-canonical address.
            models.CheckConstraint(
                condition=models.Q(address__regex=PCI_ADDRESS_PATTERN) | models.Q(gone_at__isnull=False),
                name="unit_address_canonical",
            ),
            models.UniqueConstraint(
                fields=["node", "iommu_group"],
                condition=models.Q(gone_at=None, iommu_group__isnull=False),
                name="unit_iommu_group_once",
            ),
        ]
        indexes = [
            models.Index(
                fields=["gpu_model", "node"],
                condition=models.Q(gone_at=None, sellable=True),
                name="unit_for_sale",
            ),
        ]

    def __str__(self) -> str:
        return self.address

    @property
    def sellable_gpus(self) -> int:
        """The number of GPUs for sale in this unit; 0 if it is not for sale."""
        return self.gpu_count if self.sellable else 0

    @property
    def not_reservable_reason(self) -> str:
        """Why the unit cannot be reserved, apart from failed GPUs; empty if it can."""
        return self.explain_not_reservable(())

    def explain_not_reservable(self, failed: Sequence[str]) -> str:
        """Return why the unit cannot be reserved; see the function `explain_not_reservable`."""
        return explain_not_reservable(
            gone=self.gone_at is not None,
            alloc_class=self.alloc_class,
            sellable=self.sellable,
            not_sellable_reason=self.not_sellable_reason,
            failed=failed,
        )


class Gpu(models.Model):
    """One GPU of a unit, with its health, which is not topology."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    unit = models.ForeignKey(GpuUnit, models.CASCADE, related_name="gpus")
    address = models.CharField(max_length=32)
    serial = models.CharField(max_length=96, blank=True, help_text="the last that was reported")
    previous_serial = models.CharField(
        max_length=96, blank=True, help_text="of the card that was in this slot before"
    )
    card_changed_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    failure = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("unit", "address")
        constraints = [
            models.UniqueConstraint(fields=["unit", "address"], name="gpu_address_once"),
            models.CheckConstraint(
                condition=models.Q(address__regex=PCI_ADDRESS_PATTERN), name="gpu_address_canonical"
            ),
        ]
        indexes = [
            models.Index(fields=["unit"], condition=models.Q(failed_at__isnull=False), name="gpu_failed")
        ]

    def __str__(self) -> str:
        return self.address
