"""Django's PostgreSQL backend, with two things it lacks: a look at a pooled connection that costs no round
trip, and cursors whose statements PostgreSQL plans once a connection."""
