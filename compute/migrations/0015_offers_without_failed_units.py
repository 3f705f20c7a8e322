from django.db import migrations


class Migration(migrations.Migration):
    """Stored offers count failed units and hosts reserved to others; the next reader surveys the fleet anew."""

    dependencies = [
        ("compute", "0014_offers_with_kept_shares"),
    ]

    operations = [
        migrations.RunSQL("DELETE FROM compute_availabilitystate", "DELETE FROM compute_availabilitystate"),
    ]
