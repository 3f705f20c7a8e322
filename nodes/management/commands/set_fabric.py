"""Create an InfiniBand fabric, or add addresses and nodes to one."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nodes.models import Fabric, Node
from nodes.services.fabrics import set_fabric, set_node_fabric
from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.core.ids import parse_id


class Command(BaseCommand):
    help = "Make an InfiniBand fabric or add to it. Addresses are added to its pool, never taken away."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", type=slug_argument, help="the fabric's slug")
        parser.add_argument("--name", help="what people call it; the slug at first")
        parser.add_argument(
            "--network",
            action="append",
            default=[],
            help="a network of its pool (CIDR); repeatable",
        )
        parser.add_argument("--node", action="append", default=[], help="the id of a node on it; repeatable")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["slug"]
        ids_by_text = {text: parse_id(text) for text in options["node"]}
        existing_ids = set(
            Node.objects.live().filter(pk__in=filter(None, ids_by_text.values())).values_list("pk", flat=True)
        )
        unknown = [text for text, node_id in ids_by_text.items() if node_id not in existing_ids]
        if unknown:
            raise CommandError(f"There is no node {', '.join(unknown)}. Nothing was changed.")
        current_name = Fabric.objects.filter(slug=slug).values_list("name", flat=True).first()
        try:
            fabric = set_fabric(
                slug,
                name=options["name"] or current_name or slug,
                networks=options["network"],
                actor=OPERATOR,
            )
            for node_id in existing_ids:
                set_node_fabric(node_id, fabric, actor=OPERATOR)
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"{fabric.name}: {fabric.addresses.count()} addresses, "
            f"{fabric.addresses.filter(holder=None).count()} free, {fabric.nodes.count()} nodes"
        )
