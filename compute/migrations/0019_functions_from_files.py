"""Load the functions from compute/sql, and give three of them plain names."""

from django.db import migrations

from compute import sql

RENAMED = {
    "compute_on_node(uuid, timestamptz, interval, uuid)": "compute_node_snapshot",
    "compute_pool_news(uuid, text, uuid[], uuid, timestamptz, interval, integer)": "compute_fleet_delta",
    "compute_unseen(pg_snapshot)": "compute_unseen_xids",
}
# Those that the others call come first.
LOADED = (
    "unseen_xids",
    "open_units",
    "open_pool",
    "fleet_delta",
    "freshness",
    "node_snapshot",
    "mark_node",
    "mark_rows",
    "mark_gpus",
    "mark_row",
    "mark_audience",
    "mark_itself",
    "mark_every_node",
)


def rename(old: str, new: str) -> migrations.RunSQL:
    """Rename a function, and back again."""
    name, _, arguments = old.partition("(")
    return migrations.RunSQL(
        f"ALTER FUNCTION {old} RENAME TO {new}", f"ALTER FUNCTION {new}({arguments} RENAME TO {name}"
    )


class Migration(migrations.Migration):
    dependencies = [("compute", "0018_canonical_preferred_regions")]

    operations = [
        *(rename(old, new) for old, new in RENAMED.items()),
        *(migrations.RunSQL(sql.load(name), migrations.RunSQL.noop) for name in LOADED),
    ]
