"""Offers: a cache of the fleet's capacity that is the same for every organization.

These rows decide nothing: placement reads the facts. If they are lost, one survey of the fleet restores them.
"""

from uuid import UUID

from django.db import models
from django.db.models.functions import MD5

# The `node_id` of a `NodeChange` that concerns every node: a change of the catalog of GPU models.
EVERY_NODE = UUID(int=0)


class NodeChange(models.Model):
    """The last transaction that changed a node's offers. Only database triggers write it."""

    node_id = models.UUIDField(primary_key=True)
    xid = models.BigIntegerField(db_index=True)

    class Meta:
        db_table = "compute_nodechange"

    def __str__(self) -> str:
        return f"{self.node_id} at {self.xid}"


class NodeOffer(models.Model):
    """The GPUs of one model that a node has for an organization without reservations there, as last surveyed.

    `shape` is a JSON list. Nodes with the same offer have the same text. `services.fleet.node_survey` writes
    and reads it.
    """

    id = models.BigAutoField(primary_key=True)
    node_id = models.UUIDField()
    gpu_model_id = models.UUIDField()
    online = models.BooleanField()
    shape = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node_id", "gpu_model_id"], name="offer_once")]
        indexes = [
            models.Index(fields=["node_id"], condition=models.Q(online=False), name="offer_of_silent_node"),
            # Indexed by digest: the shape of a node with many units is too long for an index.
            models.Index("gpu_model_id", MD5("shape"), "node_id", name="offer_of_shape"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_model_id} on {self.node_id}"


class AvailabilityState(models.Model):
    """The only row about all offers together: their time, and how many nodes have each shape.

    `snapshot` is PostgreSQL's transaction snapshot. The offers lack the changes of transactions outside it.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    version = models.UUIDField()
    snapshot = models.TextField()
    surveyed_at = models.DateTimeField(help_text="the offers are as of this time")
    checked_at = models.DateTimeField(help_text="when somebody last looked for what had changed")
    next_term_at = models.DateTimeField(null=True, help_text="when the next hold begins or ends")
    silent = models.PositiveIntegerField(default=0, help_text="how many offers are of nodes not heard from")
    offers = models.TextField(help_text="JSON: by GPU model, each shape and how many nodes give it")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="one_availability_state"),
        ]

    def __str__(self) -> str:
        return f"offers as of {self.surveyed_at}"
