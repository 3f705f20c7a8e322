"""What a GPU costs by the hour."""

from django.db import models

from compute.models.workload import Tier
from openrelay.ids import new_id


class GpuPrice(models.Model):
    """The rate of one GPU of a model at a tier, in cents an hour. Without one it is not sold so."""

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
