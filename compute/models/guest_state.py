"""The inside of a guest as its node reports it: console, SSH server, disk usage."""

from django.db import models


class GuestState(models.Model):
    """The last report about the inside of one run's guest.

    It decides only one thing: how much disk space an eviction frees on a full disk. It is a separate row, so
    that values that change with every report do not wait for the node's lock.
    """

    run = models.OneToOneField("compute.Run", models.CASCADE, primary_key=True, related_name="guest_state")
    ssh_ready = models.BooleanField(default=False, help_text="a probe on the node saw its SSH server answer")
    console = models.TextField(blank=True, help_text="the tail of its console")
    console_at = models.DateTimeField(null=True, blank=True)
    disk_total_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    disk_used_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    said_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"guest of {self.run_id}"
