"""What a guest is like inside, by its node's word: its console, whether SSH answers, how full its disk is."""

from django.db import models


class GuestState(models.Model):
    """The last that was heard of one run's inside. Nothing is decided by it, but for how much
    room on a full disk is made by who has to go.

    A row of its own, for what changes with every report must not queue behind the node's lock.
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
