"""Templates: images that VMs may start from."""

from django.db import models
from django.db.models import Q

from compute.querysets import VmTemplateQuerySet
from openrelay.core.ids import new_id


class VmTemplate(models.Model):
    """One image that nodes store as `filename`. It may be limited to a manufacturer or to GPU models."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=128)
    description = models.CharField(max_length=500, blank=True)
    filename = models.CharField(max_length=255)
    os_type = models.CharField(max_length=32)
    os_version = models.CharField(max_length=32, blank=True)
    driver_version = models.CharField(max_length=32, blank=True)
    requires_gpu = models.BooleanField(default=False)
    is_default = models.BooleanField(default=False, help_text="what a VM starts from that names no image")
    sort_order = models.IntegerField(default=0)
    manufacturer = models.CharField(
        max_length=32, blank=True, help_text="whose GPUs alone it has drivers for; empty: anybody's"
    )
    gpu_models: "models.ManyToManyField[models.Model, models.Model]" = models.ManyToManyField(
        "nodes.GpuModel", blank=True, related_name="templates", help_text="the only ones it suits, if any"
    )
    offered = models.BooleanField(default=True, help_text="whether new VMs may start from it")

    objects = VmTemplateQuerySet.as_manager()

    class Meta:
        ordering = ("sort_order", "slug")
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="one_default_template"
            )
        ]

    def __str__(self) -> str:
        return self.name
