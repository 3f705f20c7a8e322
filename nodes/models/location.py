"""Locations of nodes."""

from django.db import models

from openrelay.core.canonical import SLUG_PATTERN
from openrelay.core.ids import new_id


class Location(models.Model):
    """A data centre, or a part of one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=128)
    city = models.CharField(max_length=128)
    country = models.CharField(max_length=2, help_text="ISO 3166 code of two letters")
    region = models.CharField(max_length=64, db_index=True)
    latitude = models.FloatField(null=True, blank=True)
    longitude = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ("slug",)
        constraints = [
            models.CheckConstraint(
                condition=models.Q(region__regex=SLUG_PATTERN), name="location_region_canonical"
            ),
            models.CheckConstraint(
                condition=models.Q(slug__regex=SLUG_PATTERN), name="location_slug_canonical"
            ),
        ]

    def __str__(self) -> str:
        return self.name
