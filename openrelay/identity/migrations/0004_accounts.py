from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("identity", "0003_custom_roles"),
    ]

    operations = [
        migrations.AddField(
            model_name="organization",
            name="balance_depleted_at",
            field=models.DateTimeField(
                blank=True,
                help_text="when it was told that its balance is used up; null while it is not",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="organization",
            name="balance_low_at",
            field=models.DateTimeField(
                blank=True,
                help_text="when it was told that its balance is low; null while it is not",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="organization",
            name="deleted_at",
            field=models.DateTimeField(
                blank=True, help_text="when it was deleted; its row, log and usage stay", null=True
            ),
        ),
        migrations.AddField(
            model_name="organization",
            name="suspended_at",
            field=models.DateTimeField(blank=True, help_text="when operators suspended it", null=True),
        ),
        # The grace period of an account that is suspended already begins now.
        migrations.RunSQL(
            "UPDATE identity_organization SET suspended_at = statement_timestamp() "
            "WHERE account_status = 'suspended'",
            "UPDATE identity_organization SET account_status = 'suspended' WHERE suspended_at IS NOT NULL",
        ),
        migrations.RemoveField(
            model_name="organization",
            name="account_status",
        ),
        migrations.AddIndex(
            model_name="organization",
            index=models.Index(
                condition=models.Q(("suspended_at__isnull", False)),
                fields=["suspended_at"],
                name="org_suspended",
            ),
        ),
        migrations.AddIndex(
            model_name="organization",
            index=models.Index(
                condition=models.Q(("balance_depleted_at__isnull", False)),
                fields=["balance_depleted_at"],
                name="org_balance_depleted",
            ),
        ),
        migrations.AddIndex(
            model_name="organization",
            index=models.Index(
                condition=models.Q(("balance_low_at__isnull", False)),
                fields=["balance_low_at"],
                name="org_balance_low",
            ),
        ),
        migrations.AddIndex(
            model_name="organization",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)), fields=["deleted_at"], name="org_deleted"
            ),
        ),
        migrations.AddConstraint(
            model_name="organization",
            constraint=models.CheckConstraint(
                condition=models.Q(("is_platform_ops", False), ("deleted_at", None), _connector="OR"),
                name="platform_ops_organization_stays",
            ),
        ),
        migrations.AddConstraint(
            model_name="organization",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("balance_cents__isnull", False),
                    models.Q(("balance_depleted_at", None), ("balance_low_at", None)),
                    _connector="OR",
                ),
                name="no_balance_is_not_used_up",
            ),
        ),
    ]
