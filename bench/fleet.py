"""A fleet of any size: one node made by the services, copied row by row by PostgreSQL."""

from typing import Any

# Each table of a node's own, with the columns that name it or are named for it, and how to tell its rows.
_COPIES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("nodes_node", ("id",), "t.id = %(node)s"),
    ("nodes_nodeheartbeat", ("node_id",), "t.node_id = %(node)s"),
    ("nodes_gpuunit", ("id", "node_id"), "t.node_id = %(node)s"),
    (
        "nodes_gpu",
        ("id", "unit_id"),
        "t.unit_id IN (SELECT id FROM nodes_gpuunit WHERE node_id = %(node)s)",
    ),
)


def grow(connection: Any, node_id: Any, first: int, last: int) -> None:
    """Add copies of the node numbered from `first` to before `last`: online for the next day, and idle."""
    with connection.cursor() as cursor:
        for table, renamed, which in _COPIES:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' "
                "AND table_name = %s AND is_identity = 'NO' AND is_generated = 'NEVER' "
                "ORDER BY ordinal_position",
                [table],
            )
            names = [name for (name,) in cursor.fetchall()]
            values = []
            for name in names:
                if name in renamed:
                    values.append(f"md5(t.{name}::text || ':' || n)::uuid")
                elif name == "hostname":
                    values.append("t.hostname || '-' || n")
                elif name == "seen_at":
                    values.append("now() + interval '1 day'")
                else:
                    values.append(f"t.{name}")
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "
                f"FROM {table} t CROSS JOIN generate_series(%(first)s, %(last)s - 1) n WHERE {which}",
                {"node": node_id, "first": first, "last": last},
            )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
