"""InfiniBand fabrics, and the addresses that they lease to pods."""

from django.db import models
from django.db.models import Q

from openrelay.core.canonical import SLUG_PATTERN
from openrelay.core.ids import new_id


class Fabric(models.Model):
    """A separate InfiniBand network of some nodes, with a pool of addresses for the pods there."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=128)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("slug",)
        constraints = [
            models.CheckConstraint(
                condition=models.Q(slug__regex=SLUG_PATTERN), name="fabric_slug_canonical"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class FabricAddress(models.Model):
    """One address of a fabric's pool. It is free, or leased to a holder (a workload) on a node."""

    id = models.BigAutoField(primary_key=True)
    fabric = models.ForeignKey(Fabric, models.PROTECT, related_name="addresses")
    address = models.GenericIPAddressField()
    holder = models.UUIDField(
        null=True, blank=True, unique=True, help_text="the workload that has it; null while it is free"
    )
    node = models.ForeignKey(
        "nodes.Node", models.PROTECT, null=True, blank=True, related_name="fabric_addresses"
    )
    leased_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "fabric addresses"
        ordering = ("fabric", "id")
        constraints = [
            models.UniqueConstraint(fields=["fabric", "address"], name="fabric_address_once"),
            models.CheckConstraint(
                condition=Q(holder=None, node=None, leased_at=None)
                | Q(holder__isnull=False, node__isnull=False, leased_at__isnull=False),
                name="fabric_address_leased_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["fabric", "id"], condition=Q(holder=None), name="fabric_address_free")
        ]

    def __str__(self) -> str:
        return str(self.address)
