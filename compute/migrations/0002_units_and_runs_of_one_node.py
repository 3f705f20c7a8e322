"""Composite foreign keys: a claim or occupancy names a unit of its node, and a run that is there, of its workload."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("compute", "0001_initial"), ("nodes", "0001_initial")]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE compute_claim
                ADD CONSTRAINT claim_unit_of_node FOREIGN KEY (unit_id, node_id)
                    REFERENCES nodes_gpuunit (id, node_id),
                ADD CONSTRAINT claim_run_of_workload_on_node FOREIGN KEY (run_id, workload_id, node_id)
                    REFERENCES compute_run (id, workload_id, node_id);
            ALTER TABLE compute_occupancy
                ADD CONSTRAINT occupancy_unit_of_node FOREIGN KEY (unit_id, node_id)
                    REFERENCES nodes_gpuunit (id, node_id),
                ADD CONSTRAINT occupancy_run_on_node FOREIGN KEY (run_id, node_id)
                    REFERENCES compute_run (id, node_id);
            """,
            """
            ALTER TABLE compute_claim
                DROP CONSTRAINT claim_unit_of_node, DROP CONSTRAINT claim_run_of_workload_on_node;
            ALTER TABLE compute_occupancy
                DROP CONSTRAINT occupancy_unit_of_node, DROP CONSTRAINT occupancy_run_on_node;
            """,
        )
    ]
