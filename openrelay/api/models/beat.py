"""The sign of life of the background work."""

from django.db import models


class Beat(models.Model):
    """When a task that beat schedules last ran in a worker: one row, in real time."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_beat")]

    def __str__(self) -> str:
        return f"last beat at {self.at}"
