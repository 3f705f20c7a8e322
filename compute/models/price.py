"""Hourly prices: GPUs by model and tier, VMs without GPUs by size."""

from django.db import models

from compute.models.workload import Tier
from openrelay.core.ids import new_id


class GpuPrice(models.Model):
    """The price of one GPU of a model at a tier. A model without a price is not sold at that tier."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    gpu_model = models.ForeignKey("nodes.GpuModel", models.CASCADE, related_name="prices")
    tier = models.CharField(max_length=16, choices=Tier)
    cents_per_gpu_hour = models.PositiveIntegerField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("gpu_model", "tier")
        constraints = [
            models.UniqueConstraint(fields=["gpu_model", "tier"], name="price_once_a_tier"),
            models.CheckConstraint(condition=models.Q(tier__in=Tier.values), name="price_tier_known"),
        ]

    def __str__(self) -> str:
        return f"{self.cents_per_gpu_hour} cents a GPU hour, {self.tier}"


class OrgGpuPrice(models.Model):
    """An organization's own price. It overrides the list price and never makes a model sellable."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey("identity.Organization", models.CASCADE, related_name="gpu_prices")
    gpu_model = models.ForeignKey("nodes.GpuModel", models.CASCADE, related_name="org_prices")
    tier = models.CharField(max_length=16, choices=Tier)
    cents_per_gpu_hour = models.PositiveIntegerField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("organization", "gpu_model", "tier")
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "gpu_model", "tier"], name="org_price_once_a_tier"
            ),
            models.CheckConstraint(condition=models.Q(tier__in=Tier.values), name="org_price_tier_known"),
        ]

    def __str__(self) -> str:
        return f"{self.cents_per_gpu_hour} cents a GPU hour, {self.tier}, for {self.organization_id}"


class ResourceSize(models.Model):
    """A size of VMs without GPUs, with its price in cents an hour."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=64, unique=True, help_text="the name that requests use")
    vcpu = models.PositiveIntegerField()
    ram_mb = models.PositiveIntegerField(help_text="MiB that the guest boots with")
    cents_per_hour = models.PositiveIntegerField()

    class Meta:
        ordering = ("vcpu", "ram_mb", "slug")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(vcpu__gte=1, ram_mb__gte=512), name="resource_size_boots"
            )
        ]

    def __str__(self) -> str:
        return self.slug
