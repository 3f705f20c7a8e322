from django.db import migrations


class Migration(migrations.Migration):
    """Offers are spelled otherwise now; the next reader surveys the fleet anew."""

    dependencies = [
        ("compute", "0013_open_pool"),
    ]

    operations = [
        migrations.RunSQL("DELETE FROM compute_availabilitystate", "DELETE FROM compute_availabilitystate"),
    ]
