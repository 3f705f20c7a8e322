"""The catalog of GPU models."""

from django.db import models

from openrelay.core.canonical import SLUG_PATTERN
from openrelay.core.ids import new_id


class GpuModel(models.Model):
    """One product, for example the H100 SXM with 80 GB. An unknown GPU gets a hidden placeholder."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.CharField(max_length=96, unique=True, help_text="the name that inventories use")
    name = models.CharField(max_length=128)
    manufacturer = models.CharField(max_length=32, db_index=True)
    vram_gb = models.PositiveIntegerField()
    architecture = models.CharField(max_length=64, blank=True)
    form_factor = models.CharField(max_length=32, blank=True)
    interconnect = models.CharField(max_length=64, blank=True)
    hidden = models.BooleanField(default=False, help_text="a placeholder, or not offered for sale")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("slug",)
        constraints = [
            models.CheckConstraint(
                condition=models.Q(slug__regex=SLUG_PATTERN), name="gpu_model_slug_canonical"
            ),
        ]

    def __str__(self) -> str:
        return self.name
