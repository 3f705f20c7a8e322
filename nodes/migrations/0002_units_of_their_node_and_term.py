"""Composite foreign keys: a held unit is of its hold's node, and its copy of the term follows the hold's."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("nodes", "0001_initial")]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE nodes_holdunit
                ADD CONSTRAINT held_unit_has_the_holds_term FOREIGN KEY (hold_id, node_id, term)
                    REFERENCES nodes_hold (id, node_id, term) ON UPDATE CASCADE ON DELETE CASCADE,
                ADD CONSTRAINT held_unit_of_node FOREIGN KEY (unit_id, node_id)
                    REFERENCES nodes_gpuunit (id, node_id);
            """,
            """
            ALTER TABLE nodes_holdunit
                DROP CONSTRAINT held_unit_has_the_holds_term, DROP CONSTRAINT held_unit_of_node;
            """,
        )
    ]
